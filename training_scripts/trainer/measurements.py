"""Measurements of a rank: seconds of its steps and their parts, bytes of its memory."""

from __future__ import annotations

import resource
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

_BYTES_PER_KIB = 1024


class Meter:
    """Timer of a rank's steps, and of the parts of the current step.

    Evaluation and checkpoints are outside of steps; only `seconds_per_step` includes them. On a GPU the parts measure
    the host's time: the wait for the device is part of the operation that reads its results.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._total_steps = 0
        self._steps, self._seconds, self._data_wait_seconds = 0, 0.0, 0.0
        self._step_began = 0.0
        self._parts: dict[str, float] = {}

    @contextmanager
    def step(self) -> Iterator[None]:
        """Time one optimizer step."""
        began = self._step_began = time.monotonic()
        self._parts = {}
        yield
        self._seconds += time.monotonic() - began
        self._steps += 1
        self._total_steps += 1

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a part of a step, such as `forward`; parts of the same name add up."""
        began = time.monotonic()
        yield
        key = f"{name}_seconds"
        self._parts[key] = self._parts.get(key, 0.0) + time.monotonic() - began

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        """Time a wait for the data loader within a step."""
        began = time.monotonic()
        with self.part("data_wait"):
            yield
        self._data_wait_seconds += time.monotonic() - began

    def end_local_part(self) -> None:
        """Record the seconds from the start of the step to its first collective.

        Until this collective, no other rank can slow the step down.
        """
        self._parts.setdefault("local_seconds", time.monotonic() - self._step_began)

    def of_step(self) -> dict[str, float]:
        """Return the seconds of the current step and of its parts so far."""
        return {"step_seconds": time.monotonic() - self._step_began, **self._parts}

    def read(self) -> tuple[int, float, float]:
        """Return the number of steps since the last call, their seconds, and the seconds spent waiting for data.

        The seconds of waiting are part of the steps' seconds.
        """
        reading = self._steps, self._seconds, self._data_wait_seconds
        self._steps, self._seconds, self._data_wait_seconds = 0, 0.0, 0.0
        return reading

    def seconds_per_step(self) -> float:
        """Return the mean wall-clock seconds per step so far, evaluation and checkpoints included."""
        return (time.monotonic() - self._began) / max(1, self._total_steps)


def peak_memory(device: torch.device) -> tuple[int, str]:
    """Return this rank's peak memory in bytes, and a text that describes which memory that is."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device), "GPU memory in tensors"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES_PER_KIB
    return peak, "resident memory of the process, Python and torch included"


def state_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return this rank's bytes of parameters, gradients and optimizer states.

    For a sharded tensor, only this rank's shard counts. Example: after the first step with AdamW, 1,000
    float32 parameters take 4,000 bytes, their gradients 4,000 and their moments 8,000, together 16,000. Each
    parameter tensor also has a step count of 4 bytes.
    """
    parameters = list(model.parameters())
    gradients = (each for each in parameters if each.requires_grad)
    held = [*parameters, *gradients, *_tensors(optimizer.state)]
    return sum(_own(each).nbytes for each in held)


def _tensors(state: dict[Any, dict[str, Any]]) -> Iterator[Tensor]:
    for values in state.values():
        yield from (each for each in values.values() if isinstance(each, Tensor))


def _own(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor: the local shard of a DTensor, otherwise the tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
