"""DDP as torchrun starts it trains as one process does, over an interruption."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.strategies.proof import TOLERANCE

if TYPE_CHECKING:
    from tests.strategies.proof import Proving

pytestmark = [pytest.mark.engine, pytest.mark.torch, pytest.mark.slow]


def test_two_ranks_on_each_of_two_instances_train_as_one_process(
    proving: Proving, alone: dict[int, float]
) -> None:
    flags = {
        "sagemaker_torch_distributed_enabled": "true",
        "sagemaker_mpi_num_of_processes_per_host": "2",
    }

    proof = proving.prove("torchrun", **flags)

    proof.check(alone, ranks=4, tolerance=TOLERANCE)
    assert any("(gloo)" in line for line in proof.log)
