"""The models that a job can train: a Llama-style decoder and a multilayer perceptron for tables.

A model's config is a plain dict in `model.json`; `build` turns it into a module, so that evaluation
and serving need nothing but `model.json` and `model.pt`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer.models.gpt import GPT, GPTConfig, rope_table
from trainer.models.mlp import MLP, MLPConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn


def build(config: Mapping[str, Any]) -> nn.Module:
    """Return the untrained module that `config` (`model.json`'s "config") describes.

    Raises:
        ValueError: the kind of model is unknown.
    """
    settings = dict(config)
    match settings.pop("kind", None):
        case "gpt":
            return GPT(GPTConfig(**settings))
        case "mlp":
            return MLP(MLPConfig(**settings))
        case other:
            raise ValueError(f"model.json names the kind {other!r}; known are gpt and mlp")


def build_empty(config: Mapping[str, Any]) -> nn.Module:
    """Return the module for weights that are assigned to it: a decoder's parameters take no memory.

    What is computed from the config alone, such as the table of positions, is there.

    Raises:
        ValueError: the kind of model is unknown.
    """
    if config.get("kind") != "gpt":
        return build(config)
    with torch.device("meta"):
        model = build(config)
    shape = model.config
    tables = rope_table(shape.sequence_length, shape.hidden_size // shape.num_heads)
    model.rope_cos, model.rope_sin = tables
    return model
