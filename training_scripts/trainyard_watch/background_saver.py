"""Background writer of checkpoints: one at a time, on a thread, while training continues."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard_watch.errors import CheckpointError

if TYPE_CHECKING:
    from trainyard_watch.checkpoint_folder import CheckpointFolder
    from trainyard_watch.metrics import MetricsWriter

log = logging.getLogger(__name__)
ABANDONED_AFTER_S = 30.0
"""Limit on the wait for a sharded checkpoint after the run has failed: its other ranks may have failed, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCheckpoint:
    """Result of writing one checkpoint; `num_bytes` is 0 if it failed."""

    step: int
    is_durable: bool
    seconds: float
    cpu_seconds: float
    num_bytes: int


class BackgroundSaver:
    """Background writer that reports each checkpoint as durable or failed, in the metrics and the log."""

    def __init__(self, folder: CheckpointFolder, metrics: MetricsWriter) -> None:
        self._folder = folder
        self._metrics = metrics
        self._thread: threading.Thread | None = None
        self._written: WrittenCheckpoint | None = None

    @property
    def is_writing(self) -> bool:
        """Return whether a checkpoint is being written."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, step: int, **content: Any) -> None:
        """Start writing a checkpoint.

        The caller must `finish` the previous write first, and must not change `content` (arguments of
        `CheckpointFolder.save`) until this write has finished.
        """
        self._thread = threading.Thread(target=self._write, args=(step, content), name="checkpoint")
        self._thread.start()

    def finish(self) -> WrittenCheckpoint | None:
        """Wait for the write in progress; return the result of the last write, or None if there was none."""
        if self._thread:
            self._thread.join()
            self._thread = None
        return self._written

    def wait(self, within_s: float | None = None) -> None:
        """Wait for the write in progress, at most `within_s` seconds if that is given."""
        if self._thread:
            self._thread.join(within_s)

    def _write(self, step: int, content: dict[str, Any]) -> None:
        began, cpu_began, num_bytes = time.monotonic(), time.thread_time(), 0
        try:
            path, num_bytes = self._folder.save(step, **content)
        except Exception as error:
            # The thread's boundary: training continues after any error, which must be reported.
            is_expected = isinstance(error, CheckpointError)
            log.log(logging.ERROR, "NO CHECKPOINT OF STEP %d, training continues: %s", step, error,
                    exc_info=not is_expected)  # fmt: skip
            self._metrics.write("checkpoint_failed", step=step, reason=str(error) or repr(error))
            is_durable = False
        else:
            self._metrics.write(
                "durable",
                step=step,
                seconds=time.monotonic() - began,
                bytes=num_bytes,
                cpu_seconds=time.thread_time() - cpu_began,
            )
            log.info("%s is durable", path)
            is_durable = True
        self._written = WrittenCheckpoint(
            step=step,
            is_durable=is_durable,
            seconds=time.monotonic() - began,
            cpu_seconds=time.thread_time() - cpu_began,
            num_bytes=num_bytes,
        )
