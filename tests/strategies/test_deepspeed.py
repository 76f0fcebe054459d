"""DeepSpeed's ZeRO, by each of its stages, trains as one process does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.sagemaker_engine.images.built import need_image
from tests.strategies.proof import TOLERANCE

if TYPE_CHECKING:
    from tests.strategies.proof import Proving

pytestmark = [pytest.mark.engine, pytest.mark.torch, pytest.mark.slow]
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/deepspeed:0.19.8"
LAUNCH = {
    "sagemaker_torch_distributed_enabled": "true",
    "sagemaker_mpi_num_of_processes_per_host": "2",
}
CPU = {"device": "cpu"}
STAGES: dict[str, dict[str, Any]] = {
    "zero-1": {"stage": 1},
    "zero-2": {"stage": 2, "offload_optimizer": CPU},
    "zero-3": {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU},
}


@pytest.mark.parametrize("name", STAGES)
def test_zero_on_two_instances_trains_as_one_process(
    proving: Proving, alone: dict[int, float], name: str
) -> None:
    need_image("deepspeed")
    config = json.dumps({"zero_optimization": STAGES[name], "train_batch_size": 8})
    written: dict[str, Any] = {"ds_config": config}
    if name == "zero-3":  # from a channel, where a configuration is too long for a hyperparameter
        written = {"more": {"deepspeed/ds_config.json": config.encode()}}

    proof = proving.prove(
        name,
        script="train_deepspeed.py",
        image=IMAGE,
        micro_batch_size="1",
        **LAUNCH,
        **written,
    )

    proof.check(alone, ranks=4, tolerance=TOLERANCE)
