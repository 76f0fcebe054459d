"""The toolkit's MPI launches train as one process does, over an interruption."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.strategies.proof import TOLERANCE

if TYPE_CHECKING:
    from tests.strategies.proof import Proving

pytestmark = [pytest.mark.engine, pytest.mark.torch, pytest.mark.slow]
LAUNCHES = {
    "mpi": {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": "-x GREETING=hi"},
    "pytorchddp": {"sagemaker_pytorch_ddp_enabled": "true"},
    "smddp": {"sagemaker_distributed_dataparallel_enabled": "true"},
}
BACKENDS = {"mpi": "(gloo)", "pytorchddp": "(gloo)", "smddp": "(smddp)"}
GREETED = b"""
import os
import sys

from train_ddp import main

if __name__ == "__main__":
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    print(f"rank {rank} was told GREETING={os.environ.get('GREETING')}", flush=True)
    sys.exit(main())
"""
"""train_ddp.py, which first tells what mpirun exported to it."""


@pytest.mark.parametrize("launch", LAUNCHES)
def test_two_ranks_on_each_of_two_instances_train_as_one_process(
    proving: Proving, alone: dict[int, float], launch: str
) -> None:
    flags = {**LAUNCHES[launch], "sagemaker_mpi_num_of_processes_per_host": "2"}

    proof = proving.prove(
        launch, script="train_greeted.py", added={"train_greeted.py": GREETED}, **flags
    )

    proof.check(alone, ranks=4, tolerance=TOLERANCE)
    assert any(BACKENDS[launch] in line for line in proof.log)
    told = set(re.findall(r"rank (\d) was told GREETING=(\w+)", "\n".join(proof.log)))
    greeting = "hi" if launch == "mpi" else "None"
    assert told == {(str(rank), greeting) for rank in range(4)}
