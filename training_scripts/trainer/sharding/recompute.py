"""Activation checkpointing and offloading of layers.

Sources: Chen et al. 2016 for the recomputation of whole layers; torchtitan's `selective op` for the mode
that keeps every second matrix product and recomputes the others.
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


def make_recompute(
    kind: str, *, offloads: bool, device: torch.device, keeps_random: bool
) -> Recompute | None:
    """Return the function that runs a layer with recomputation in its backward pass, or None for `kind` "none".

    Args:
        kind: "none"; "selective", which keeps attention and every second matrix product; or "full", which keeps the
            layer's input only.
        offloads: whether to keep the saved tensors in the host's memory.
        device: device of the layers.
        keeps_random: whether to keep the results of operators that may draw random numbers, such as attention,
            instead of computing them again (`keeps_random_of`).
    """
    if kind == "none":
        return None
    run = partial(checkpoint, use_reentrant=False)
    if kind == "selective" or keeps_random:  # otherwise a layer keeps its input only
        run = partial(
            run,
            context_fn=partial(
                _selective_contexts, is_selective=kind == "selective", keeps_random=keeps_random
            ),
        )
    if not offloads:
        return run
    return partial(_run_offloaded, run, pins=device.type == "cuda")


def _run_offloaded(
    run: Recompute, layer: Callable[[Tensor], Tensor], hidden: Tensor, *, pins: bool
) -> Tensor:
    with save_on_cpu(pin_memory=pins):
        return run(layer, hidden)


def keeps_random_of(device: torch.device, *, is_compiled: bool, is_split: bool) -> bool:
    """Return whether a layer must keep the results of random operators, because torch cannot recompute them.

    This is so if the layer is compiled and split by tensor parallelism, and the device is not CUDA. Tensor
    parallelism saves its device mesh among the outputs of the forward graph. torch.compile (2.13) puts the
    random states of the recomputation behind the mesh, and then mistakes the mesh for a tensor
    (`functionalize_rng_ops` in torch/_functorch/partitioners.py). On CUDA the states are inputs of the graph
    instead.
    """
    return is_compiled and is_split and device.type != "cuda"


def _selective_contexts(
    **kept: bool,
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    return create_selective_checkpoint_contexts(_Policy(**kept))


class _Policy:
    """Policy that selects operators whose results are kept; all other results are recomputed.

    It counts the matrix products of the forward pass and of the recomputation separately, so that it selects
    the same ones in each.

    Args:
        is_selective: keep attention and every second matrix product.
        keeps_random: keep the results of operators that may draw random numbers.
    """

    def __init__(self, *, is_selective: bool, keeps_random: bool) -> None:
        self._is_selective, self._keeps_random = is_selective, keeps_random
        self._num_products = {False: 0, True: 0}

    def __call__(self, context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        """Return the policy for an operator's output: it is saved or recomputed."""
        is_kept = self._keeps_random and torch.Tag.nondeterministic_seeded in getattr(
            operator, "tags", ()
        )
        if self._is_selective and not is_kept:
            is_kept = self._is_selected(context, operator)
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    def _is_selected(self, context: Any, operator: Any) -> bool:
        if operator in PRODUCTS:
            self._num_products[context.is_recompute] += 1
            return self._num_products[context.is_recompute] % 2 == 1
        return operator in KEPT
