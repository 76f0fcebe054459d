"""train_fsdp.py on two instances, interrupted once, beside one process of train_ddp.py."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.sagemaker_engine.jobs.conftest import SPOT, JobBench, put_faults, statuses
from tests.sagemaker_engine.jobs.own_jobs import TORCHRUN, put_data, train

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.engine, pytest.mark.torch, pytest.mark.slow]
SMP_IMAGE = (
    "658645717510.dkr.ecr.us-east-1.amazonaws.com/smdistributed-modelparallel:2.4.1-gpu-py311-cu121"
)
RTOL = 2e-4
"""Of losses, as documented for a run whose ranks change."""
SMDDP = {"sagemaker_distributed_dataparallel_enabled": "true"}
TWO_EACH = {"sagemaker_mpi_num_of_processes_per_host": "2"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "fsdp-by-smddp": {"asked": SMDDP},
    "hsdp-by-smp": {
        "asked": {
            "mp_parameters": json.dumps(
                {"hybrid_shard_degree": 2, "sm_activation_offloading": True}
            ),
            **TWO_EACH,
        },
        "image": SMP_IMAGE,
    },
    "tensor-by-smp": {
        "asked": {"mp_parameters": json.dumps({"tensor_parallel_degree": 2}), **TWO_EACH},
        "image": SMP_IMAGE,
    },
    "context": {"asked": {"context_parallel_degree": "2"}},
    "pipeline": {"asked": {"pipeline_parallel_degree": "2"}},
    "recomputed-on-the-host": {
        "asked": {"activation_checkpointing": "selective", "cpu_offload": "true"}
    },
}


def losses(bench: JobBench, name: str) -> dict[int, float]:
    """Return the loss of each step, as its last attempt printed it."""
    lines = (
        re.match(r"trainyard step=(\d+) .*? ?loss=([0-9.]+)", line) for line in bench.log(name)
    )
    return {int(found[1]): float(found[2]) for found in lines if found}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_spread_training_is_interrupted_and_ends_as_one_process_does(
    bench: JobBench, tmp_path: Path, layout: str
) -> None:
    put_data(bench, tmp_path / "data")
    train(
        bench, "one", "train_ddp.py", instances=1, asked=TORCHRUN,
        StoppingCondition={"MaxRuntimeInSeconds": 400},
    )  # fmt: skip
    alone = bench.wait("one")
    assert alone.status == "Completed", alone.state.get("FailureReason")
    put_faults(bench, {"what": "interrupt", "at": {"step": 5}, "job": "spread"})
    settings = LAYOUTS[layout]
    limits = {"StoppingCondition": {"MaxRuntimeInSeconds": 400, "MaxWaitTimeInSeconds": 600}}

    asked = {**TORCHRUN, **settings["asked"]}
    train(
        bench, "spread", "train_fsdp.py", instances=2, asked=asked, image=settings.get("image"),
        **{**SPOT, **limits},
    )  # fmt: skip

    row = bench.wait("spread")
    log = bench.log("spread")
    assert row.status == "Completed", (row.state.get("FailureReason"), log[-60:])
    assert statuses(row).count("Interrupted") == 1
    assert [line for line in log if re.match(r"trainyard resume step=[246] ", line)], log
    assert list(losses(bench, "one")) == list(range(1, 9))
    assert losses(bench, "spread") == pytest.approx(losses(bench, "one"), rel=RTOL)
    model = bench.archive("out/spread/output/model.tar.gz")
    assert {"config.json", "model.json", "model.safetensors"} <= model.keys()
    assert any("torch.sagemaker has started" in line for line in log) == ("mp_parameters" in asked)
    assert any("(smddp)" in line for line in log) == (SMDDP.items() <= asked.items())
