"""Metrics: one fixed line format on stdout, and JSON lines in a file.

A line is `trainyard <event> key=value ...`; the lines of steps have no event name. The value of `reason` is a JSON
string. training_scripts/README.md describes the kinds of lines.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

log = logging.getLogger(__name__)
FORMATS = {
    "loss": ".6f", "validation_loss": ".6f", "gradient_norm": ".6f", "learning_rate": ".6e",
    "tokens_per_second": ".1f", "samples_per_second": ".1f", "eta_seconds": ".1f", "seconds": ".3f",
    "stall_seconds": ".6f", "validation_accuracy": ".6f",
}  # fmt: skip
LINE_KEYS = {
    "start": ("step", "world_size", "global_batch_size", "num_samples", "seed", "max_steps",
              "attempt_id", "mixture"),
    "step": ("step", "epoch", "loss", "learning_rate", "tokens_per_second", "samples_per_second",
             "gradient_norm", "eta_seconds", "max_steps", "samples", "digest"),
    "eval": ("step", "validation_loss", "validation_tokens", "validation_samples",
             "validation_accuracy", "validation_loss_by_source"),
    "checkpoint": ("step", "stall_seconds"),
    "durable": ("step", "seconds", "bytes"),
    "checkpoint_failed": ("step", "reason"),
    "interval": ("steps", "reason"),
    "resume": ("step", "checkpoint"),
    "alive": ("step",),
    "setup": ("seconds",),
    "skipped": ("step", "reason"),
    "no_model": ("step", "reason"),
    "done": ("step", "validation_loss", "seconds", "weights_sha256"),
}  # fmt: skip
QUOTED_KEYS = ("reason",)
ALIVE_AFTER_S = 30.0
SETUP_TIMEOUT_S = 7200.0
"""Seconds that ranks wait for each other outside of steps, while data and checkpoints are verified, read or written."""

START_TIMEOUT_S = 1200.0
"""Seconds that building the model, distributing it, and compiling it in the first step may take."""


class MetricsWriter:
    """Writer of events on rank 0; on other ranks (`enabled` false) it writes nothing.

    The history of all events is a file of JSON lines. It is part of every checkpoint, so it covers all attempts
    of a run. If an event cannot be written, for example because the disk is full, it stays in memory until a
    later write succeeds. The writer is safe to use from several threads.
    """

    def __init__(
        self,
        folder: Path,
        *,
        enabled: bool,
        stream: TextIO | None = None,
        alive_after_s: float = ALIVE_AFTER_S,
    ) -> None:
        self._enabled, self._alive_after_s = enabled, alive_after_s
        self._began = time.monotonic()
        self._stream = stream or sys.stdout
        self._folder = folder
        self._lock = threading.Lock()
        self._printed_at = time.monotonic()
        self._num_bytes, self._unwritten, self._is_failing = 0, b"", False
        # Called with each event and its values.
        self.listeners: list[Callable[[str, dict[str, Any]], None]] = []
        if enabled:
            folder.mkdir(parents=True, exist_ok=True)
            self._path.write_bytes(b"")

    @property
    def _path(self) -> Path:
        return self._folder / "metrics.jsonl"

    def restore(self, history: bytes) -> None:
        """Replace the history by that of an earlier attempt; later events are appended."""
        if self._enabled:
            with self._lock:
                self._num_bytes, self._unwritten = 0, history
                self._append()

    def history(self, num_bytes: int | None = None) -> bytes:
        """Return every event so far as JSON lines, or the first `num_bytes` of them."""
        if not self._enabled:
            return b""
        with self._lock:
            return (self._path.read_bytes()[: self._num_bytes] + self._unwritten)[:num_bytes]

    def num_bytes(self) -> int:
        """Return the current length of the history in bytes."""
        with self._lock:
            return self._num_bytes + len(self._unwritten)

    def write(self, event: str, **values: Any) -> None:
        """Record one event and pass it to the listeners; events in LINE_KEYS are printed, too."""
        if not self._enabled:
            return
        record = {"event": event, "time": time.time(), **_finite(values)}
        with self._lock:
            self._unwritten += json.dumps(record).encode() + b"\n"
            self._append()
            if event in LINE_KEYS:
                self._stream.write(format_line(event, values) + "\n")
                self._stream.flush()
                self._printed_at = time.monotonic()
        for listener in self.listeners:
            listener(event, values)

    def _append(self) -> None:
        """Cut off what an incomplete write left in the file, then append the unwritten events.

        If the file cannot be written, the events stay unwritten, and no error is raised. Only the first of
        several failures in a row is logged.
        """
        try:
            with self._path.open("r+b", buffering=0) as file:
                file.truncate(self._num_bytes)
                file.seek(self._num_bytes)
                file.write(self._unwritten)
                written = file.tell() - self._num_bytes
        except OSError as error:
            written = 0
            reason = str(error)
        else:
            reason = "only a part was written"
        if written == len(self._unwritten):
            self._num_bytes, self._unwritten = self._num_bytes + written, b""
            self._is_failing = False
        elif not self._is_failing:
            self._is_failing = True
            log.error("%s cannot be written, its events are kept in memory: %s", self._path, reason)

    def write_alive(self, step: int | None) -> None:
        """Print an `alive` line if nothing was printed for a while (30 s by default); cheap to call often.

        Before the `start` line, `step` is None, and a `setup` line is printed instead of the `alive` line. If
        `step` is not None, each call also sends the listeners a `beat`, even on ranks that print nothing.
        """
        if step is not None:
            for listener in self.listeners:
                listener("beat", {"step": step})
        if time.monotonic() - self._printed_at < self._alive_after_s:
            return
        if step is None:
            self.write("setup", seconds=time.monotonic() - self._began)
        else:
            self.write("alive", step=step)

    def next_beat_s(self) -> float:
        """Return the seconds until `kept_alive` calls `write_alive` again: at most a third of `alive_after_s`."""
        due_s = self._printed_at + self._alive_after_s - time.monotonic()
        third_s = self._alive_after_s / 3
        return min(due_s, third_s) if due_s > 0 else third_s  # ranks that print nothing stay due

    @contextmanager
    def kept_alive(
        self, step: int | None = None, *, at_most_s: float = SETUP_TIMEOUT_S
    ) -> Iterator[None]:
        """Report the run as alive from a thread while the body runs, for at most `at_most_s` seconds.

        Use it for long work outside of steps. The default limit is the time that ranks wait for each other
        outside of steps.
        """
        has_ended = threading.Event()
        last = time.monotonic() + at_most_s

        def beat() -> None:
            while not has_ended.wait(self.next_beat_s()) and time.monotonic() < last:
                self.write_alive(step)

        thread = threading.Thread(target=beat, name="alive", daemon=True)
        thread.start()
        try:
            yield
        finally:
            has_ended.set()
            thread.join()

    @contextmanager
    def setting_up(self, *, at_most_s: float = SETUP_TIMEOUT_S) -> Iterator[None]:
        """Print a `setup` line, and report the run as alive while the body runs, as `kept_alive` does.

        The limit on silence (`heartbeat_timeout_s`) begins with a job's first line. The `setup` line is printed at
        once, so that the limit also covers a hang before any other line.
        """
        self.write("setup", seconds=time.monotonic() - self._began)
        with self.kept_alive(at_most_s=at_most_s):
            yield

    def write_summary(self, **values: Any) -> None:
        """Write summary.json next to the history (metrics.jsonl)."""
        if self._enabled:
            text = json.dumps(_finite(values), indent=2)
            (self._folder / "summary.json").write_text(text + "\n", encoding="utf-8")


def format_line(event: str, values: dict[str, Any]) -> str:
    """Return an event as a log line, e.g. `trainyard done step=9 validation_loss=2.345678 ...`."""
    pairs = [
        f"{key}={_text(key, values[key])}"
        for key in LINE_KEYS[event]
        if values.get(key) is not None
    ]
    head = ["trainyard"] if event == "step" else ["trainyard", event]
    return " ".join(head + pairs)


def _text(key: str, value: Any) -> str:
    return json.dumps(value) if key in QUOTED_KEYS else f"{value:{FORMATS.get(key, '')}}"


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` with None for NaN and infinities, which JSON cannot represent."""
    return {
        key: None if isinstance(v, float) and not math.isfinite(v) else v
        for key, v in values.items()
    }
