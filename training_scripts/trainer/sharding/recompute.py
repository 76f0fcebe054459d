"""Activation checkpointing and offloading of layers.

Sources: Chen et al. 2016 for whole layers; torchtitan's `selective op` for half of the matrix products.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor

    from trainer.sharding.decoder import Recompute

PRODUCTS = frozenset({torch.ops.aten.mm.default, torch.ops.aten.addmm.default})
KEPT = frozenset(
    {
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001 the operator's name
        torch.ops.aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001
        torch.ops.aten._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
        torch.ops.aten._scaled_dot_product_cudnn_attention.default,  # noqa: SLF001
    }
)


def make_recompute(kind: str, *, offloads: bool, device: torch.device) -> Recompute | None:
    """Return the function that runs a layer with recomputation in its backward pass, or None for `kind` "none".

    Args:
        kind: "none"; "selective", which keeps attention and every second matrix product; or "full", which keeps the
            layer's input only.
        offloads: keep the saved tensors in the host's memory.
        device: of the layers.
    """
    if kind == "none":
        return None
    contexts = {"context_fn": _selective_contexts} if kind == "selective" else {}
    run = partial(checkpoint, use_reentrant=False, **contexts)
    if not offloads:
        return run
    return partial(_run_offloaded, run, pins=device.type == "cuda")


def _run_offloaded(
    run: Recompute, layer: Callable[[Tensor], Tensor], hidden: Tensor, *, pins: bool
) -> Tensor:
    with save_on_cpu(pin_memory=pins):
        return run(layer, hidden)


def _selective_contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    return create_selective_checkpoint_contexts(_Policy())


class _Policy:
    """Policy that keeps attention and every second matrix product, counted separately in forward and recomputation."""

    def __init__(self) -> None:
        self._num_products = {False: 0, True: 0}

    def __call__(self, context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        """Return whether an operator's output is saved or recomputed."""
        if operator in PRODUCTS:
            self._num_products[context.is_recompute] += 1
            is_kept = self._num_products[context.is_recompute] % 2 == 1
        else:
            is_kept = operator in KEPT
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE
