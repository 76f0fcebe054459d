"""The end of an engine whose job has left what nobody can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sagemaker_engine.sandbox.processes import is_alive
from sagemaker_engine.state.jobs import ResourceKind
from sagemaker_engine.state.store import JobStore
from tests.sagemaker_engine.jobs.conftest import IMAGE, wait_for

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

NAME = "piped"


def test_a_named_pipe_among_the_checkpoints_does_not_hold_the_engine(
    own_engine: RunningEngine,
) -> None:
    bucket = own_engine.bucket
    own_engine.client("sagemaker").create_training_job(
        TrainingJobName=NAME,
        RoleArn=own_engine.role_arn,
        AlgorithmSpecification={
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/sh", "-c"],
            "ContainerArguments": ["cd /opt/ml/checkpoints; mkfifo p; echo 1 > a; sleep 600"],
        },
        OutputDataConfig={"S3OutputPath": f"s3://{bucket}/out"},
        CheckpointConfig={"S3Uri": f"s3://{bucket}/piped/"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 600},
    )
    s3 = own_engine.client("s3")
    wait_for(
        lambda: s3.list_objects_v2(Bucket=bucket, Prefix="piped/").get("KeyCount"),
        lambda count: count == 1,
    )
    store = JobStore(own_engine.root / "engine.sqlite")
    row = store.get(ResourceKind.TRAINING, NAME)

    assert own_engine.stop() == 0

    assert store.get(ResourceKind.TRAINING, NAME).status == "Stopped"
    wait_for(lambda: is_alive(row.runner_pid, row.runner_start_ticks), lambda alive: not alive)
    store.close()
