"""Portable row order of fused projections, which any tensor parallel degree can split.

In the plain order, `query_key_value` has all query rows, then all key rows, then all value rows. Half of
its rows is not half of the heads. In the portable order, the rows of each key-value head are next to those
of its query heads. In `gate_up`, each gate row is next to its up row. If the rows are then split into equal
parts, each part has whole groups of heads, or whole pairs of gate and up rows. So a checkpoint fits every
degree. The files of a finished model have the plain order. Source: Megatron-LM's `mixed_qkv` layout
(Shoeybi et al. 2019, section 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from trainer.decoder_config import GPTConfig

NUM_GATED = 2


def to_portable(name: str, weight: Tensor, config: GPTConfig) -> Tensor:
    """Return a decoder's weight: in portable row order if it is a fused projection's, otherwise unchanged.

    Example: with 2 heads of width 1, the rows q0 q1 k0 k1 v0 v1 become q0 k0 v0 q1 k1 v1. With 4 query heads
    and 2 key-value heads, the rows q0 q1 q2 q3 k0 k1 v0 v1 become q0 q1 k0 v0 q2 q3 k1 v1.
    """
    groups = _groups(name, weight, config)
    if groups is None:
        return weight
    num, rows = groups
    parts = weight.split([num * each for each in rows])
    split = [part.view(num, each, -1) for part, each in zip(parts, rows, strict=True)]
    return torch.cat(split, dim=1).reshape(weight.shape)


def to_plain(name: str, weight: Tensor, config: GPTConfig) -> Tensor:
    """Return a weight in the plain row order, which `trainer.models.gpt` uses.

    This is the inverse of `to_portable`.
    """
    groups = _groups(name, weight, config)
    if groups is None:
        return weight
    num, rows = groups
    split = weight.view(num, sum(rows), -1).split(rows, dim=1)
    return torch.cat([part.reshape(-1, weight.shape[1]) for part in split])


def _groups(name: str, weight: Tensor, config: GPTConfig) -> tuple[int, tuple[int, ...]] | None:
    """Return a fused projection's number of row groups, and how many rows each part has in one group.

    The parts are query, key and value, or gate and up. Example: `query_key_value` with 4 query heads and 2 key-value
    heads of width 1 has (2, (2, 1, 1)). Return None for other weights.
    """
    if name.endswith("query_key_value.weight"):
        queries = config.num_heads // config.key_value_heads
        size = config.head_size
        return config.key_value_heads, (queries * size, size, size)
    if name.endswith("gate_up.weight"):
        return weight.shape[0] // NUM_GATED, (1,) * NUM_GATED
    return None
