"""Small Llama models whose weights follow from their names, for this environment and an image with transformers."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

SHAPE = {
    "model_type": "llama", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 512,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SCALING = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
CASES: Mapping[str, Mapping[str, Any]] = {
    "grouped": SHAPE,
    "one-head-each": {**SHAPE, "num_key_value_heads": 4},
    "tied": {**SHAPE, "tie_word_embeddings": True},
    "llama3": {**SHAPE, "rope_theta": 500_000.0, "rope_scaling": SCALING},
    "llama3-tied": {**SHAPE, "rope_theta": 500_000.0, "rope_scaling": SCALING, "tie_word_embeddings": True},
}  # fmt: skip
"""Name -> config.json."""
TOKENS = (torch.arange(96) * 7 % 61).unsqueeze(0)
POSITIONS = (1, 40, 95)
"""Positions whose logits are compared. The last two are beyond the original context of `SCALING`."""


def weight_of(name: str, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Return the weight of one of Hugging Face's tensors."""
    phase = zlib.crc32(name.encode()) % 1009
    numbers = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    values = 0.3 * torch.sin(numbers * 1.37 + numbers**2 * 0.11 + phase)
    return (values + (1.0 if len(shape) == 1 else 0.0)).float().view(shape)
