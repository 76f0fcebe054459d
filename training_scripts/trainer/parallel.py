"""The model as the steps call it: compiled if asked, its gradients averaged over the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainyard_watch.random_states import random_states, restore_random_states

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainyard_watch.distributed import Ranks


def make_parallel(model: nn.Module, ranks: Ranks, *, compiled: bool) -> nn.Module:
    """Return the model, wrapped if there is more than one rank."""
    model = torch.compile(model) if compiled else model  # type: ignore[assignment]
    if ranks.world_size == 1:
        return model
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415 first use: seconds

    devices = [ranks.device.index] if ranks.device.type == "cuda" else None
    return DistributedDataParallel(
        model,
        device_ids=devices,
        gradient_as_bucket_view=True,
        broadcast_buffers=False,  # constants; each forward pass would wait for the slowest rank
    )


def settle_buckets(parallel: nn.Module, ranks: Ranks, loss: Callable[[], Tensor]) -> None:
    """Go through one step without effect, so that every later one adds gradients in one order.

    DDP regroups the gradients after the first backward pass of a process. Three ranks and more add
    the floats of another grouping in another order: the step after a resume, the first of its
    process, would differ in its last bits from the same step of the unbroken run. With two ranks
    there is one order only. `loss` is a forward pass; its randomness is taken back.
    """
    if ranks.world_size < 3:
        return
    before = random_states(ranks.device)
    parallel.train()
    loss().backward()
    for parameter in parallel.parameters():
        parameter.grad = None
    restore_random_states(before, ranks.device)
