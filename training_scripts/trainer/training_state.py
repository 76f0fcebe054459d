"""Everything a run needs to go on exactly where it was: collected for a checkpoint, and put back."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainer.checkpoint import CheckpointFolder
from trainer.errors import CheckpointError

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Progress:
    """Where the run is: changed by the training loop only."""

    step: int = 0
    samples_consumed: int = 0
    best_validation_loss: float | None = None
    evaluations_without_gain: int = 0


def random_states(device: torch.device) -> dict[str, Any]:
    """Return this process's random states: torch, python, CUDA and numpy where they are in use."""
    states: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": _as_lists(random.getstate()),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy"] = [name, keys.tolist(), *rest]
    return states


def restore_random_states(states: Mapping[str, Any], device: torch.device) -> None:
    """Put back what `random_states` returned."""
    torch.set_rng_state(states["torch"])
    random.setstate(_as_tuples(states["python"]))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    if "numpy" in sys.modules and "numpy" in states:
        sys.modules["numpy"].random.set_state(tuple(states["numpy"]))


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list) else value


def copy_to_cpu(value: Any) -> Any:
    """Return a copy of nested containers in which every tensor is a private CPU copy."""
    match value:
        case Tensor():
            return value.detach().to("cpu", copy=True)
        case dict():
            return {key: copy_to_cpu(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(copy_to_cpu(item) for item in value)
        case _:
            return value


class BackgroundSaver:
    """Writes checkpoints on a thread while training goes on, one at a time; used on rank 0 only."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self._folder = folder
        self._thread: threading.Thread | None = None
        self._error: CheckpointError | None = None

    def start(self, step: int, **content: Any) -> None:
        """Begin to write; waits for the checkpoint before. `content` must be private copies.

        Raises:
            CheckpointError: the checkpoint before could not be written.
        """
        self.finish()
        self._thread = threading.Thread(target=self._write, args=(step, content), name="checkpoint")
        self._thread.start()

    def finish(self) -> None:
        """Wait until what was started is durable.

        Raises:
            CheckpointError: it could not be written.
        """
        if self._thread:
            self._thread.join()
            self._thread = None
        if self._error:
            raise self._error

    def _write(self, step: int, content: dict[str, Any]) -> None:
        began = time.monotonic()
        try:
            path = self._folder.save(step, **content)
            log.info(
                "checkpoint %s is durable after %.2f s in the background",
                path,
                time.monotonic() - began,
            )
        except CheckpointError as error:
            self._error = error
