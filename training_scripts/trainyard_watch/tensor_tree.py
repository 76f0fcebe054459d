"""Nested containers of tensors: copies on the CPU, and broadcast to all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainyard_watch.distributed import Ranks


@dataclass(frozen=True, slots=True)
class TensorShape:
    """Placeholder for a tensor in a broadcast tree."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class CpuBuffers:
    """CPU copies of a tree of tensors, in buffers that the next copy reuses.

    New memory for each copy would cost more than the copy itself, since the system allocates it page by
    page. Buffers for GPU tensors are pinned, so all tensors are copied asynchronously.
    """

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []

    def copy(self, tree: Any) -> Any:
        """Return a copy of the tree on the CPU, valid until the next call."""
        tensors = [tensor.detach() for tensor in _tensors(tree)]
        if not _are_alike(tensors, self._buffers):
            self._buffers = [
                torch.empty(t.shape, dtype=t.dtype, pin_memory=t.is_cuda) for t in tensors
            ]
        for buffer, tensor in zip(self._buffers, tensors, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
            torch.cuda.synchronize(device)
        copies = iter(self._buffers)
        return _replace(tree, Tensor, lambda _: next(copies))


def on_cpu(tree: Any) -> Any:
    """Return the tree with copies of its GPU tensors on the CPU; CPU tensors are not copied."""
    return _replace(tree, Tensor, lambda tensor: tensor.detach().cpu())


def broadcast_tree(tree: Any, ranks: Ranks) -> Any:
    """Return rank 0's tree on every rank, with its tensors on the CPU.

    Tensors are sent one by one, so memory stays at one copy. Rank 0's tensors must be on the CPU; the trees that other
    ranks pass are ignored.
    """
    if ranks.world_size == 1:
        return tree
    outline = _replace(tree, Tensor, lambda t: TensorShape(tuple(t.shape), t.dtype))
    outline = ranks.broadcast(outline)
    tensors = iter(_tensors(tree)) if ranks.is_main else None

    def receive(place: TensorShape) -> Tensor:
        tensor = next(tensors) if tensors else torch.empty(place.shape, dtype=place.dtype)
        sent = tensor.contiguous().to(ranks.device)
        dist.broadcast(sent, src=0)
        return sent.cpu()

    return _replace(outline, TensorShape, receive)


def _are_alike(tensors: list[Tensor], others: list[Tensor]) -> bool:
    kinds = [[(each.shape, each.dtype) for each in side] for side in (tensors, others)]
    return kinds[0] == kinds[1]


def _tensors(tree: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _replace(tree, Tensor, found.append)
    return found


def _replace(tree: Any, kind: type, replacement: Callable[[Any], Any]) -> Any:
    if isinstance(tree, kind):
        return replacement(tree)
    if isinstance(tree, dict):
        return {key: _replace(item, kind, replacement) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_replace(item, kind, replacement) for item in tree)
    return tree
