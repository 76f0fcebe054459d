"""Portable row order of fused projections, which any tensor parallel degree can split.

In the plain order, `query_key_value` has all query rows, then all key rows, then all value rows. Half of its rows is
not half of the heads. In the portable order, each head's query, key and value rows are adjacent, and each gate row
is next to its up row. Equal parts of the rows are then whole heads and whole channels, and a checkpoint fits every
degree. The files of a finished model have the plain order. Source: Megatron-LM's `mixed_qkv` layout (Shoeybi et al.
2019, section 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

NUM_QKV, NUM_GATED = 3, 2


def to_portable(weights: Mapping[str, Tensor], *, num_heads: int) -> dict[str, Tensor]:
    """Return the weights with the rows of fused projections in portable order.

    Example: with 2 heads of width 1, the rows q0 q1 k0 k1 v0 v1 become q0 k0 v0 q1 k1 v1.
    """
    return {
        name: _reordered(name, each, num_heads, inverse=False) for name, each in weights.items()
    }


def to_plain(weights: Mapping[str, Tensor], *, num_heads: int) -> dict[str, Tensor]:
    """Return the weights in the order of `trainer.models.gpt`, the inverse of `to_portable`."""
    return {name: _reordered(name, each, num_heads, inverse=True) for name, each in weights.items()}


def _reordered(name: str, weight: Tensor, num_heads: int, *, inverse: bool) -> Tensor:
    if name.endswith("query_key_value.weight"):
        groups, parts = num_heads, NUM_QKV
    elif name.endswith("gate_up.weight"):
        groups, parts = weight.shape[0] // NUM_GATED, NUM_GATED
    else:
        return weight
    rows = weight.shape[0] // (groups * parts)
    outer, inner = (groups, parts) if inverse else (parts, groups)
    split = weight.view(outer, inner, rows, weight.shape[1])
    return split.transpose(0, 1).reshape(weight.shape)
