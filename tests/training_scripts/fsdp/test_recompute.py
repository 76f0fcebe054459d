"""Layers that are computed again in the backward pass have the gradients of those that are not."""

from __future__ import annotations

import pytest
import torch

from trainer.models.gpt import Block
from trainer.sharding.hyperparameters import ShardedHyperparameters
from trainer.sharding.model import parallelize_model

pytestmark = pytest.mark.torch
SHAPE = {"num_layers": 2, "num_heads": 2, "hidden_size": 8, "sequence_length": 4, "dropout": 0.2}


def gradients(**settings):
    """Return the gradients of each parameter, and how often a layer's first module ran."""
    hp = ShardedHyperparameters(**SHAPE, precision="fp32", **settings)
    model, _ = parallelize_model(
        {"kind": "gpt", "vocab_size": 16, **SHAPE}, hp, None, torch.device("cpu")
    )
    runs = []
    for block in model.blocks.values():
        assert isinstance(block, Block)
        block.attention_norm.register_forward_hook(lambda *_: runs.append(1))
    torch.manual_seed(1)  # of dropout
    model(torch.arange(4).view(1, 4)).square().sum().backward()
    return {name: each.grad for name, each in model.named_parameters()}, len(runs)


@pytest.mark.parametrize("offloads", [False, True], ids=["kept", "offloaded"])
@pytest.mark.parametrize("kind", ["full", "selective"])
def test_each_layer_runs_again_with_the_same_gradients(kind, offloads):
    expected, once = gradients()

    found, twice = gradients(activation_checkpointing=kind, activation_offloading=offloads)

    assert (once, twice) == (2, 4)
    torch.testing.assert_close(found, expected)
