"""AdamW with decay groups, and the setter of its learning rate."""

from __future__ import annotations

import torch
from torch import nn

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
