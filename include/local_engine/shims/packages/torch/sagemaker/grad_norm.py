"""Gradient clipping over shards and split layers."""

from __future__ import annotations

import re

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.sagemaker._state import state

WRAPPERS = re.compile(r"(_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod)\.")
TINY = 1e-6


@torch.no_grad()
def clip_grad_norm_(model: nn.Module, max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Scale the gradients of one model, that is spread over shards and tensor-parallel ranks, down to the norm.

    Returns:
        The norm before, on every rank.
    """
    own = [
        (WRAPPERS.sub("", name), _local(each.grad))
        for name, each in model.named_parameters()
        if each.grad is not None
    ]
    device = own[0][1].device if own else torch.device("cpu")
    total = torch.zeros((), dtype=torch.float64, device=device)
    for name, gradient in own:
        copies = 1 if name in state.split else state.tensor_parallel_degree
        total += torch.linalg.vector_norm(gradient, norm_type).double() ** norm_type / copies
    if state.replica_group is not None:
        dist.all_reduce(total, group=state.replica_group)
    norm = (total ** (1 / norm_type)).float()
    factor = (max_norm / (norm + TINY)).clamp(max=1.0)
    for _, gradient in own:
        gradient.mul_(factor)
    return norm


def _local(gradient: Tensor) -> Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient
