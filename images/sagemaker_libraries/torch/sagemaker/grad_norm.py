"""Gradient clipping for sharded parameters and split layers."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.sagemaker._gradients import GradientPart, gradient_parts, local
from torch.sagemaker._state import state

TINY = 1e-6


@torch.no_grad()
def clip_grad_norm_(model: nn.Module, max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Clip the gradients of one model, which all ranks train, to the norm `max_norm`; every rank must call it.

    Returns:
        The norm before scaling, a scalar on every rank. It is the norm of all gradients as one vector.

    Raises:
        ValueError: `norm_type` is not above 0.
    """
    norm_type = float(norm_type)
    if not norm_type > 0:
        message = (
            f"torch.sagemaker.grad_norm.clip_grad_norm_: norm_type is {norm_type:g}; "
            "allowed: numbers above 0, and inf; give 2.0 for the Euclidean norm"
        )
        raise ValueError(message)
    norm = _norm(gradient_parts(model), norm_type)
    factor = (max_norm / (norm + TINY)).clamp(max=1.0)
    for parameter in model.parameters():
        if parameter.grad is not None:
            gradient = local(parameter.grad)
            gradient.mul_(factor.to(gradient.device))
    return norm


def _norm(parts: list[GradientPart], norm_type: float) -> Tensor:
    """Return the norm of all gradients as one vector, the same on every rank.

    With p = `norm_type`, the norm is (S / world_size)^(1/p). S is the sum of num_parts * |part|^p over all
    parts of all ranks, with `num_parts` of `GradientPart`. For p = inf, the norm is the largest absolute value.

    Example: p is 2. A gradient of norm 5 has num_parts = 2 parts, with the norms 3 and 4. There are four ranks,
    and each part is on two of them: 2 * (3^2 + 4^2 + 3^2 + 4^2) / 4 = 25 = 5^2.
    """
    device = "cpu" if state.mesh is None else state.mesh.device_type
    own = torch.zeros((), dtype=torch.float64, device=device)
    for part in parts:
        size = torch.linalg.vector_norm(part.values, norm_type, dtype=torch.float32).to(own)
        if math.isinf(norm_type):
            own = torch.maximum(own, size)
        else:
            own += size**norm_type * part.num_parts
    everybodys = [own]
    if dist.is_initialized():
        everybodys = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(everybodys, own)  # no reduction: the maximum of gloo and NCCL drops NaN
    if math.isinf(norm_type):
        return torch.stack(everybodys).max().float()
    return (torch.stack(everybodys).mean() ** (1 / norm_type)).float()
