"""Scripts of a user's own with SMP, SMDDP and instance groups lose their hosts once, and end as one process does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.limits import EVENT_LIMIT_S
from tests.sagemaker_engine.jobs import own_scripts
from tests.sagemaker_engine.jobs.conftest import SPOT, JobBench, put_faults, statuses, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [pytest.mark.engine, pytest.mark.torch, pytest.mark.slow]
SMP_IMAGE = (
    "658645717510.dkr.ecr.us-east-1.amazonaws.com/smdistributed-modelparallel:2.4.1-gpu-py311-cu121"
)
TORCHRUN = {
    "sagemaker_torch_distributed_enabled": "true",
    "sagemaker_instance_type": "ml.p4d.24xlarge",
}
LIMITS = {"StoppingCondition": {"MaxRuntimeInSeconds": 400, "MaxWaitTimeInSeconds": 600}}
RTOL = 2e-5
WAITED_FOR = 2
"""The step whose checkpoint is in S3 before the hosts are taken away."""
GROUPS = [
    {"InstanceGroupName": "feed", "InstanceType": "ml.c5.xlarge", "InstanceCount": 1},
    {"InstanceGroupName": "train", "InstanceType": "ml.m5.large", "InstanceCount": 2},
]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """Return the loss of each step in one process of plain torch."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "task.py").write_text(own_scripts.TASK)
    (folder / "train.py").write_text(own_scripts.ALONE)
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        timeout=300, check=True,
    )  # fmt: skip
    return losses_of(done.stdout.splitlines())


def losses_of(lines: list[str]) -> dict[int, float]:
    """Return the loss of each step; a step taken again counts as it was the last time."""
    found = re.findall(r"^step=(\d+) loss=([0-9.]+)$", "\n".join(lines), re.MULTILINE)
    return {int(step): float(loss) for step, loss in found}


def train_interrupted(
    bench: JobBench, script: str, hosts: tuple[str, ...], asked: Mapping[str, str], **members: Any
) -> list[str]:
    """Train, take all hosts away once there is a checkpoint, and return what they printed until the end."""
    source = bench.put_source(
        {
            "train.py": script,
            "task.py": own_scripts.TASK,
            "data_parallel.py": own_scripts.DATA_PARALLEL,
        }
    )
    parameters = {**source, **TORCHRUN, **asked}
    bench.train("job", HyperParameters=parameters, **{**SPOT, **LIMITS, **members})
    seen = wait_for(
        lambda: (bench.row("job"), bench.keys("checkpoints/")),
        lambda seen: seen[0].is_terminal or has_checkpoint(seen[1]),
        limit_s=EVENT_LIMIT_S,
    )
    assert not seen[0].is_terminal, printed(bench, hosts)
    put_faults(bench, {"what": "interrupt", "job": "job"})
    row = bench.wait("job")
    logs = printed(bench, hosts)
    assert row.status == "Completed", (row.state.get("FailureReason"), logs)
    assert statuses(row).count("Interrupted") == 1
    return logs


def has_checkpoint(keys: list[str]) -> bool:
    """Tell whether one that can be gone on from is in S3, of either kind."""
    shards = {
        f"checkpoints/{WAITED_FOR}/{name}" for name in (".metadata", "__0_0.distcp", "__1_0.distcp")
    }
    return "checkpoints/state.pt" in keys or shards <= set(keys)


def printed(bench: JobBench, hosts: tuple[str, ...]) -> list[str]:
    return [line for host in hosts for line in bench.log("job", host)]


def check(logs: list[str], alone: dict[int, float]) -> None:
    """Fail unless it began, went on inside, and every step's loss is that of one process."""
    first, *others = [int(line.split()[-1]) for line in logs if line.startswith("goes on after")]
    assert first == 0
    assert len(others) == 1
    assert 1 <= others[0] <= own_scripts.STANDS_STILL_AFTER
    assert sorted(alone) == list(range(1, own_scripts.NUM_STEPS + 1))
    assert losses_of(logs) == pytest.approx(alone, rel=RTOL)


def test_a_script_of_smp_goes_on_from_its_shards(bench: JobBench, alone: dict[int, float]) -> None:
    parameters = {"hybrid_shard_degree": 2, "sm_activation_offloading": True}

    logs = train_interrupted(
        bench, own_scripts.SMP, ("algo-1", "algo-2"), {"mp_parameters": json.dumps(parameters)},
        instances=2, algorithm={"TrainingImage": SMP_IMAGE},
    )  # fmt: skip

    check(logs, alone)


def test_a_script_of_smddp_goes_on(bench: JobBench, alone: dict[int, float]) -> None:
    on = {"sagemaker_distributed_dataparallel_enabled": "true"}

    logs = train_interrupted(bench, own_scripts.SMDDP, ("algo-1", "algo-2"), on, instances=2)

    check(logs, alone)
    assert {"smddp rank 0 of 2", "smddp rank 1 of 2"} <= set(logs)


def test_a_group_that_another_feeds_goes_on(bench: JobBench, alone: dict[int, float]) -> None:
    hosts = ("algo-1", "algo-2", "algo-3")

    logs = train_interrupted(
        bench, own_scripts.GROUPS, hosts,
        {"sagemaker_distribution_instance_groups": json.dumps(["train"])},
        ResourceConfig={"InstanceGroups": GROUPS, "VolumeSizeInGB": 1},
    )  # fmt: skip

    check(logs, alone)
    assert {"gloo rank 0 of 2", "gloo rank 1 of 2"} <= set(logs)
    assert bench.log("job", "algo-1").count("feeds") == 2
