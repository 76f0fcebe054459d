"""A job sees the accelerators of its instance type if it asks for them; else its log says that it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.jobs.accelerators import VARIABLE, num_accelerators

if TYPE_CHECKING:
    from tests.sagemaker_engine.jobs.conftest import JobBench

P4D = {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1}
COUNT = "nvidia-smi --list-gpus | wc -l"


@pytest.mark.parametrize(
    ("instance_type", "count"),
    [("ml.p3.16xlarge", 8), ("ml.g5.2xlarge", 1), ("ml.g5.12xlarge", 4), ("ml.m5.large", 0)],
)
def test_each_type_has_the_accelerators_of_aws(instance_type: str, count: int) -> None:
    assert num_accelerators(instance_type) == count


@pytest.mark.engine
def test_the_toolkit_counts_the_types_accelerators_if_the_job_asks(bench: JobBench) -> None:
    count = "from sagemaker_training import environment; print('gpus', environment.num_gpus())"

    bench.run("asks", f'python -c "{count}"', ResourceConfig=P4D, Environment={VARIABLE: "1"})

    assert "gpus 8" in bench.log("asks")
    assert not any("emulates none" in line for line in bench.log("asks"))


@pytest.mark.engine
def test_a_log_says_that_no_accelerator_is_presented(bench: JobBench) -> None:
    bench.run("silent", COUNT, ResourceConfig=P4D)
    bench.run("cpu", "true")

    said = "ml.p4d.24xlarge has 8 accelerator(s) on AWS; this engine emulates none"
    assert any(said in line for line in bench.log("silent"))
    assert not any("accelerator" in line for line in bench.log("cpu"))


@pytest.mark.engine
@pytest.mark.slow
def test_smddp_starts_a_rank_for_each_accelerator(bench: JobBench) -> None:
    script = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"
    parameters = bench.put_source({"train.py": script})
    parameters["sagemaker_distributed_dataparallel_enabled"] = "true"
    parameters["sagemaker_instance_type"] = "ml.p3.16xlarge"

    bench.train(
        "smddp",
        HyperParameters=parameters,
        ResourceConfig={"InstanceType": "ml.p3.16xlarge", "InstanceCount": 2},
        Environment={VARIABLE: "1"},
        StoppingCondition={"MaxRuntimeInSeconds": 600},
    )
    row = bench.wait("smddp")

    assert row.status == "Completed", row.state.get("FailureReason")
    ranks = {
        line.split("rank ")[-1]
        for line in bench.log("smddp")
        if "rank " in line and " of 16" in line
    }
    assert len(ranks) == 16
