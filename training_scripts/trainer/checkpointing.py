"""How a run's state goes to disk in the background, and comes back agreed by all ranks."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from trainer.checkpoint_folder import CheckpointFolder
from trainer.errors import CheckpointError
from trainer.random_states import random_states, restore_random_states
from trainer.tensor_tree import broadcast_tree, copy_to_cpu

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.distributed import Ranks
    from trainer.metrics import MetricsWriter
    from trainer.training_state import TrainingState

log = logging.getLogger(__name__)


class Checkpointer:
    """Saves and resumes one run; every method must be called by every rank."""

    def __init__(self, folder: Path, *, keep: int, ranks: Ranks, metrics: MetricsWriter) -> None:
        self._ranks = ranks
        self._metrics = metrics
        self._folder = CheckpointFolder(folder, keep=keep)
        self._saver = BackgroundSaver(self._folder)
        self._last_step: int | None = None

    def save(self, state: TrainingState) -> None:
        """Copy the state and write it in the background; training stands still only for the copy.

        A step that is already saved is not saved again.
        """
        step = state.progress.step
        if step == self._last_step:
            return
        began = time.monotonic()
        all_random_states = self._ranks.gather(random_states(self._ranks.device))
        if self._ranks.is_main:
            self._saver.finish()
            content = copy_to_cpu(state.capture())
            content["run"]["random_states"] = all_random_states
            facts = {
                "samples_consumed": state.progress.samples_consumed,
                "world_size": self._ranks.world_size,
            }
            history = {"metrics.jsonl": self._metrics.history()}
            self._saver.start(step, objects=content, files=history, facts=facts)
        self._last_step = step
        self._metrics.write("checkpoint", step=step, stall_seconds=time.monotonic() - began)

    def finish(self) -> None:
        """Wait until the last checkpoint is durable."""
        self._saver.finish()

    def resume(self, state: TrainingState) -> bool:
        """Bring `state` to the newest good checkpoint; return whether there was one.

        Rank 0 decides and sends the content, so that all ranks go on from the same one whatever
        lies on their hosts. Ranks that the checkpoint does not know keep their fresh random state.
        """
        content: Any = None
        path = ""
        with self._ranks.all_or_none():
            if self._ranks.is_main:
                content, path = self._read_newest()
        content = broadcast_tree(content, self._ranks)
        if content is None:
            return False
        with self._ranks.all_or_none():
            state.restore(content)
        saved_random_states = content["run"]["random_states"]
        if self._ranks.rank < len(saved_random_states):
            restore_random_states(saved_random_states[self._ranks.rank], self._ranks.device)
        self._last_step = state.progress.step
        self._metrics.write("resume", step=state.progress.step, checkpoint=path)
        return True

    def _read_newest(self) -> tuple[Any, str]:
        found, rejected = self._folder.newest_good()
        for text in rejected:
            log.warning("CHECKPOINT REJECTED, trying the one before: %s", text)
        if found is None:
            if rejected:
                log.warning("NO GOOD CHECKPOINT of %d: starting from step 0", len(rejected))
            return None, ""
        content = {name: found.load(name) for name in ("model", "optimizer", "run")}
        self._metrics.restore(found.read("metrics.jsonl"))
        return content, str(found.path)


class BackgroundSaver:
    """Writes checkpoints on a thread while training goes on, one at a time."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self._folder = folder
        self._thread: threading.Thread | None = None
        self._error: CheckpointError | None = None

    def start(self, step: int, **content: Any) -> None:
        """Begin to write; `content` must be private copies, and the one before finished."""
        self._thread = threading.Thread(target=self._write, args=(step, content), name="checkpoint")
        self._thread.start()

    def finish(self) -> None:
        """Wait until what was started is durable; raises the CheckpointError of its writing."""
        if self._thread:
            self._thread.join()
            self._thread = None
        if self._error:
            raise self._error

    def _write(self, step: int, content: dict[str, Any]) -> None:
        began = time.monotonic()
        try:
            path = self._folder.save(step, **content)
        except CheckpointError as error:
            self._error = error  # raised by finish
            return
        log.info("%s is durable after %.2f s in the background", path, time.monotonic() - began)
