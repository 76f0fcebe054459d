"""Models that a job can train: a Llama-style decoder and a multilayer perceptron for tables.

A model's config is a plain dict in `model.json`. `build` makes a module from it, so evaluation
and serving need `model.json` and the weights only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer.models.gpt import GPT, GPTConfig, rope_tables
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
    """Return a module without weights, to which weights are assigned later.

    A decoder's parameters are on the meta device and take no memory. Its position tables, which depend on the config
    only, are computed. An MLP is built as by `build`.

    Raises:
        ValueError: the kind of model is unknown.
    """
    if config.get("kind") != "gpt":
        return build(config)
    with torch.device("meta"):
        model = build(config)
    model.rope_cos, model.rope_sin = rope_tables(model.config)
    return model
