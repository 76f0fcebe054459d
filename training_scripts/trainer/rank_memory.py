"""Memory of a rank: its peak, and its own part of the model's states."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

_BYTES_PER_KIB = 1024


def peak_memory(device: torch.device) -> tuple[int, str]:
    """Return the most bytes that this rank had so far, and of what."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device), "GPU memory in tensors"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES_PER_KIB
    return peak, "resident memory of the process, Python and torch included"


def state_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the bytes of parameters, their gradients and the optimizer's states that this rank itself holds.

    Of a tensor in shards its own part counts. Worked: 1,000 float32 parameters under AdamW are 4,000 bytes, as much of
    gradients and twice that of moments: 16,000 after a step, and 4 bytes for the step count of each tensor.
    """
    parameters = list(model.parameters())
    gradients = (each for each in parameters if each.requires_grad)
    held = [*parameters, *gradients, *_tensors(optimizer.state)]
    return sum(_own(each).nbytes for each in held)


def _tensors(state: dict[Any, dict[str, Any]]) -> Iterator[Tensor]:
    for values in state.values():
        yield from (each for each in values.values() if isinstance(each, Tensor))


def _own(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that lies here: of a DTensor its shard."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
