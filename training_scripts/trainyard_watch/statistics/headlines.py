"""Headline metrics of a run, as TensorBoard scalars and MLflow metrics, from rank 0.

The job's TensorBoardOutputConfig or `tensorboard_dir` enables TensorBoard, MLFLOW_TRACKING_URI enables MLflow. All
work, including imports, is done on a separate thread. A sink that fails is logged once and dropped; a sink that hangs
is abandoned at the end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)
NAMES = {
    "step": {
        "loss": "train/loss",
        "learning_rate": "train/learning_rate",
        "gradient_norm": "train/gradient_norm",
        "tokens_per_second": "train/tokens_per_second",
        "samples_per_second": "train/samples_per_second",
        "epoch": "train/epoch",
        "eta_seconds": "time/eta_seconds",
        "data_wait_seconds": "time/data_wait_seconds",
    },
    "eval": {"validation_loss": "validation/loss", "validation_accuracy": "validation/accuracy"},
    "checkpoint": {"stall_seconds": "checkpoint/stall_seconds"},
    "durable": {"seconds": "checkpoint/seconds", "bytes": "checkpoint/bytes"},
    "host": {
        "cpu_percent": "host/cpu_percent",
        "io_wait_percent": "host/io_wait_percent",
        "memory_bytes": "host/memory_bytes",
        "disk_percent": "host/disk_percent",
    },
}
HOST_INTERVAL_S = 10.0
MOST_WAITING = 1000
CLOSED_AFTER_S = 10.0
# With MLflow's own defaults, 120 s and 7, a hanging server would delay the process's exit by a quarter of an hour.
MLFLOW_PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "5", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "4"}


class Sink(Protocol):
    """Destination of scalars; used from one thread."""

    def write(self, scalars: Mapping[str, float], *, step: int, at: float) -> None:
        """Write the scalars of one step; `at` is the time in unix seconds."""

    def close(self) -> None:
        """Write the buffered scalars."""


class TensorBoardSink:
    """Sink that writes TensorBoard event files; needs the package tensorboard."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 seconds, and not everywhere

        self._writer: Any = SummaryWriter(str(folder), flush_secs=10)  # type: ignore[no-untyped-call]

    def write(self, scalars: Mapping[str, float], *, step: int, at: float) -> None:
        """Write the scalars of one step; `at` is the time in unix seconds."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, global_step=step, walltime=at)

    def close(self) -> None:
        """Write the buffered scalars."""
        self._writer.close()


class MlflowSink:
    """Sink that logs to an MLflow run, configured by MLflow's own variables; needs the package mlflow."""

    def __init__(self, job: str, parameters: Mapping[str, Any]) -> None:
        for variable, value in MLFLOW_PATIENCE.items():
            os.environ.setdefault(variable, value)
        import mlflow  # noqa: PLC0415 seconds, and not everywhere

        self._mlflow = mlflow
        mlflow.start_run(run_name=job)
        mlflow.log_params(dict(parameters))

    def write(self, scalars: Mapping[str, float], *, step: int, at: float) -> None:  # noqa: ARG002
        """Log the scalars of one step; MLflow records its own time instead of `at`."""
        self._mlflow.log_metrics(dict(scalars), step=step)

    def close(self) -> None:
        """End the MLflow run."""
        self._mlflow.end_run()


class Headlines:
    """Listener of the metrics that passes their numbers to sinks, on a separate thread.

    Args:
        makers: name of a sink -> function that creates it, which may raise any error.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Sink]]) -> None:
        self._makers = dict(makers)
        self._waiting: queue.Queue[tuple[dict[str, float], int, float] | None]
        self._waiting = queue.Queue(MOST_WAITING)
        self._host_at, self._num_dropped = 0.0, 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headlines", daemon=True)
        if self._makers:
            _tried(", ".join(self._makers), self._thread.start)

    def on_record(self, event: str, values: Mapping[str, Any]) -> None:
        """Queue the numbers of an event without waiting; safe to call from any thread."""
        now = time.time()
        if event == "host":
            if now - self._host_at < HOST_INTERVAL_S:
                return
            self._host_at = now
        found = {
            name: float(values[key])
            for key, name in NAMES.get(event, {}).items()
            if values.get(key) is not None
        }
        if found and self._thread.is_alive():
            try:
                self._waiting.put_nowait((found, int(values["step"]), now))
            except queue.Full:
                self._num_dropped += 1

    def close(self, within_s: float = CLOSED_AFTER_S) -> None:
        """Write the queued numbers; after `within_s` seconds the thread is abandoned, and lost numbers are logged."""
        self._ended.set()
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(None)  # wakes a waiting thread
            self._thread.join(within_s)
        is_left = self._thread.is_alive()
        if is_left:
            self._drop_waiting()
        if is_left or self._num_dropped:
            log.warning(
                "%s took scalars too slowly%s: the numbers of %d events were dropped; training is not blocked",
                ", ".join(self._makers),
                f" and did not end within {within_s:g} s" if is_left else "",
                self._num_dropped,
            )

    def _drop_waiting(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._num_dropped += self._waiting.get_nowait() is not None

    def _next(self) -> tuple[dict[str, float], int, float] | None:
        try:
            return self._waiting.get(block=not self._ended.is_set())
        except queue.Empty:
            return None

    def _run(self) -> None:
        sinks = {name: sink for name, make in self._makers.items() if (sink := _tried(name, make))}
        while sinks and (taken := self._next()):
            scalars, step, at = taken
            for name, sink in list(sinks.items()):
                if not _written(name, sink, scalars, step=step, at=at):
                    del sinks[name]
        for name, sink in sinks.items():
            _tried(name, sink.close)


def _written(name: str, sink: Sink, scalars: Mapping[str, float], *, step: int, at: float) -> bool:
    try:
        sink.write(scalars, step=step, at=at)
    except Exception as error:  # noqa: BLE001 a tracking server's trouble is not the training's
        _warn(name, error)
        return False
    return True


def _tried(name: str, act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as error:  # noqa: BLE001 as above
        _warn(name, error)
        return None


def _warn(name: str, error: Exception) -> None:
    log.warning("no scalars for %s (%s: %s); training continues", name, type(error).__name__, error)
