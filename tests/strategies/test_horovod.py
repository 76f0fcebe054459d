"""Horovod's ranks, started by mpirun in an environment of their own, train as one process does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sagemaker_engine.images.built import need_image
from tests.strategies.proof import TOLERANCE

if TYPE_CHECKING:
    from tests.strategies.proof import Proving

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/horovod:0.28.1"


@pytest.mark.engine
@pytest.mark.torch
@pytest.mark.slow
def test_horovod_on_two_instances_trains_as_one_process(
    proving: Proving, alone: dict[int, float]
) -> None:
    need_image("horovod")
    flags = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}

    proof = proving.prove(
        "horovod", script="train_horovod.py", image=IMAGE, micro_batch_size="1", **flags
    )

    proof.check(alone, ranks=4, tolerance=TOLERANCE)
