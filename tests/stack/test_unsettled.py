"""What a run still owes when it is over, read from its ledger and the service."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from trainyard.stack.aws import AwsEndpoint
from trainyard.stack.outcome import Unsettled, find_unsettled, unsettled_lines

pytestmark = pytest.mark.engine

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312"
RUNS = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()"


class UnsettledXcoms:
    """What an api-server answers about the run's preflight."""

    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def xcom(self, *_: str) -> Any:
        return self.returned


def note(s3: Any, bucket: str, run: str, *, name: str, kind: str = "training", **more: Any) -> str:
    """Put an entry into the ledger of a run, unsettled unless told otherwise, and return its folder."""
    entry = {"kind": kind, "name": name, "task_id": "train", "intended_at": 1.0, "settled_at": None}
    key = f"trainyard/runs/dag/{run}/ledger/{kind}-{name}.json"
    s3.put_object(Bucket=bucket, Key=key, Body=json.dumps({**entry, **more}).encode())
    return f"s3://{bucket}/{key.rpartition('/')[0]}"


def started(engine: Any, sagemaker: Any) -> str:
    """Start a job that runs until it is stopped and return its name."""
    name = f"unsettled-{uuid.uuid4().hex[:8]}"
    sagemaker.create_training_job(
        TrainingJobName=name,
        AlgorithmSpecification={
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python", "-c", RUNS],
        },
        RoleArn=engine.role_arn,
        OutputDataConfig={"S3OutputPath": f"s3://{engine.bucket}/unsettled"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 600},
    )
    return name


def test_a_job_is_owed_until_it_has_ended_whatever_the_ledger_says(engine, sagemaker, s3):
    run, name = uuid.uuid4().hex, started(engine, sagemaker)
    note(s3, engine.bucket, run, name="never-created")
    note(s3, engine.bucket, run, name="settled", settled_at=2.0)
    uri = note(s3, engine.bucket, run, name=name)
    api, aws = UnsettledXcoms({"ledger_uri": uri}), AwsEndpoint(engine.endpoint_url)

    unsettled = find_unsettled(api, aws, "dag", run)
    assert unsettled == [Unsettled(kind="training", name=name, status="InProgress")]
    assert name in "\n".join(unsettled_lines(unsettled))

    sagemaker.stop_training_job(TrainingJobName=name)
    sagemaker.get_waiter("training_job_completed_or_stopped").wait(
        TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    assert find_unsettled(api, aws, "dag", run) == []


def test_a_run_that_never_came_to_a_ledger_owes_nothing() -> None:
    assert (
        find_unsettled(UnsettledXcoms(None), AwsEndpoint("http://127.0.0.1:9"), "dag", "run") == []
    )
    assert unsettled_lines([]) == []


def test_a_ledger_that_cannot_be_read_is_owed() -> None:
    api = UnsettledXcoms({"ledger_uri": "s3://bucket/ledger"})
    (unsettled,) = find_unsettled(api, AwsEndpoint("http://127.0.0.1:9"), "dag", "run")
    assert unsettled.kind == "ledger"
    assert "cannot be read" in unsettled.status
