"""DDP wrapper of the model, optionally compiled."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainyard_watch.random_states import random_states, restore_random_states

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainyard_watch.distributed import Ranks


def make_parallel(model: nn.Module, ranks: Ranks, *, compiled: bool) -> nn.Module:
    """Return the model, compiled if `compiled` is true, and wrapped in DDP if there is more than one rank."""
    model = torch.compile(model) if compiled else model  # type: ignore[assignment]
    if ranks.world_size == 1:
        return model
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415 first use: seconds

    devices = [ranks.device.index] if ranks.device.type == "cuda" else None
    with warnings.catch_warnings():
        # Its new name in torch 2.13, `forward_sync_buffers`, is unknown to the versions of AWS's images.
        warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated")
        return DistributedDataParallel(
            model,
            device_ids=devices,
            gradient_as_bucket_view=True,
            broadcast_buffers=False,  # constants; each forward pass would wait for the slowest rank
        )


def settle_buckets(parallel: nn.Module, ranks: Ranks, loss: Callable[[], Tensor]) -> None:
    """Run one forward and backward pass without effect, so that all later steps sum gradients in the same order.

    DDP regroups the gradients after the first backward pass of a process. With three or more ranks another grouping
    sums the floats in another order. Without this pass, the first step after a resume would differ in its last bits
    from the same step of an uninterrupted run. Two ranks have one order only. `loss` runs the forward pass; the random
    states are restored afterwards.
    """
    if ranks.world_size < 3:
        return
    before = random_states(ranks.device)
    parallel.train()
    loss().backward()
    for parameter in parallel.parameters():
        parameter.grad = None
    restore_random_states(before, ranks.device)
