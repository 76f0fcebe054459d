"""Functions that put a module's parameters and buffers on another device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn


def empty_module_params(
    module: nn.Module, device: torch.device | None = None, recurse: bool = False
) -> nn.Module:
    """Replace the module's parameters by uninitialized ones on the device; return the module."""
    if any(True for _ in module.parameters(recurse=recurse)):
        module.to_empty(device=device, recurse=recurse)
    return module


def move_buffers_to_device(
    module: nn.Module, device: torch.device, recurse: bool = False
) -> nn.Module:
    """Move the module's buffers, except those on a meta device, to the device; return the module."""
    modules = module.modules() if recurse else (module,)
    for each in modules:
        for name, buffer in each.named_buffers(recurse=False):
            if not buffer.is_meta:
                each._buffers[name] = buffer.to(device)
    return module
