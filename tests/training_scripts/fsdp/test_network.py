"""A network for tables whose parameters are sharded."""

from __future__ import annotations

import pytest
import torch

from trainer.sharding.hyperparameters import ShardedHyperparameters
from trainer.sharding.mesh import RankMesh
from trainer.sharding.model import parallelize_model

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
SHAPE = {"num_layers": 1, "hidden_size": 4}
UNIX_S = 1.7e9


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_numbers_are_standardised_before_they_are_cast(two_ranks, precision):
    """FSDP2 would cast them first: seconds of this century are multiples of 8,388,608 in bf16."""
    config = {
        "kind": "mlp",
        "means": [UNIX_S],
        "stds": [60.0],
        "category_sizes": [],
        "num_outputs": 1,
        **SHAPE,
    }
    hp = ShardedHyperparameters(model="mlp", precision=precision, **SHAPE)
    model, _ = parallelize_model(config, hp, RankMesh.of(hp.degrees(2), CPU), CPU)
    seen = []
    model.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    numbers = torch.tensor([[UNIX_S - 60], [UNIX_S], [UNIX_S + 30]], dtype=torch.float64)

    model(numbers, torch.empty(3, 0, dtype=torch.int64))

    assert seen[0][:, 0].tolist() == [-1.0, 0.0, 0.5]
