"""AdamW with decay groups, and its learning rate.

A resume does not restore the weight decay from the checkpoint: the present hyperparameter applies.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)
BETAS = (0.9, 0.95)


def make_optimizer(model: nn.Module, *, weight_decay: float) -> torch.optim.AdamW:
    """Return AdamW that decays matrices only; biases, norms and other vectors are not decayed."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=0.0, betas=BETAS, fused=True
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate of every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


@contextmanager
def keeping_weight_decay(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Keep each parameter group's weight decay while the body restores the optimizer.

    torch also restores the settings of the groups, so a changed hyperparameter would otherwise have
    no effect after a resume. If the restored weight decay differs, a warning is logged.
    """
    own = [group["weight_decay"] for group in optimizer.param_groups]
    yield
    saved = [group["weight_decay"] for group in optimizer.param_groups]
    if saved != own:
        log.warning("the weight decay changed at resume: %g -> %g", max(saved), max(own))
    for group, weight_decay in zip(optimizer.param_groups, own, strict=True):
        group["weight_decay"] = weight_decay
