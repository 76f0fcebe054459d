"""Memory of a rank: its peak, and its part of the model's states."""

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
    """Return this rank's peak memory in bytes, and the kind of memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device), "GPU memory in tensors"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES_PER_KIB
    return peak, "resident memory of the process, Python and torch included"


def state_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return this rank's bytes of parameters, gradients and optimizer states.

    Of a sharded tensor only this rank's shard counts. Worked: 1,000 float32 parameters under AdamW take 4,000 bytes,
    their gradients 4,000 and their moments 8,000, together 16,000; after the first step 4 bytes more per tensor for
    its step count.
    """
    parameters = list(model.parameters())
    gradients = (each for each in parameters if each.requires_grad)
    held = [*parameters, *gradients, *_tensors(optimizer.state)]
    return sum(_own(each).nbytes for each in held)


def _tensors(state: dict[Any, dict[str, Any]]) -> Iterator[Tensor]:
    for values in state.values():
        yield from (each for each in values.values() if isinstance(each, Tensor))


def _own(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor: of a DTensor the local shard, else the tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
