"""The route that puts faults, on a real engine; and that what it put outlives the engine."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.waiting import wait_until
from tests.limits import EVENT_LIMIT_S
from tests.sagemaker_engine.test_restart import CLOCK, TERMINAL, messages, reaches

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine


def call(engine: RunningEngine, method: str, document: Any = None) -> dict[str, Any]:
    """Call the route; return its answer."""
    data = None if document is None else json.dumps(document).encode()
    url = f"{engine.endpoint_url}/_engine/faults"
    request = urllib.request.Request(url, data=data, method=method)  # noqa: S310  # loopback
    with urllib.request.urlopen(request, timeout=EVENT_LIMIT_S) as answer:  # noqa: S310  # loopback
        return dict(json.load(answer))


def start_spot_job(engine: RunningEngine, name: str, script: str) -> None:
    engine.client("sagemaker").create_training_job(
        TrainingJobName=name,
        RoleArn=engine.role_arn,
        AlgorithmSpecification={
            "TrainingImage": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/sh", "-c"],
            "ContainerArguments": [script],
        },
        OutputDataConfig={"S3OutputPath": f"s3://{engine.bucket}/output"},
        CheckpointConfig={"S3Uri": f"s3://{engine.bucket}/{name}/checkpoints"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        EnableManagedSpotTraining=True,
        StoppingCondition={"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 600},
    )


def test_interrupted_job_and_its_faults_outlive_a_killed_engine(own_engine: RunningEngine) -> None:
    call(
        own_engine,
        "PUT",
        [
            {"id": "plug", "what": "interrupt", "at": {"step": 1}},
            {"id": "none", "what": "no_capacity", "attempt": 2},
        ],
    )
    start_spot_job(own_engine, "spot", "echo step=1; [ -e /opt/ml/checkpoints/x ] || sleep 1")
    reaches(own_engine, "spot", "Interrupted")

    own_engine.restart()

    told = wait_until(
        lambda: call(own_engine, "GET")["faults"],
        lambda faults: all(each["fired_at"] for each in faults),
        clock=CLOCK,
        what="both faults",
    )
    assert [each["id"] for each in told] == ["plug", "none"]
    assert reaches(own_engine, "spot", "Interrupted")["TrainingJobStatus"] == "InProgress"
    call(own_engine, "DELETE")
    described = reaches(own_engine, "spot", *TERMINAL)
    assert described["TrainingJobStatus"] == "Completed"
    assert described["BillableTimeInSeconds"] <= described["TrainingTimeInSeconds"]
    assert messages(own_engine, "spot").count("step=1") == 2


def test_route_tells_what_holds_and_refuses_what_cannot_be(engine: RunningEngine) -> None:
    put = call(engine, "PUT", {"seed": 7, "interruptions_per_hour": 1, "max_interruptions": 0})
    assert put["schedule"]["seed"] == 7
    assert call(engine, "GET") == put

    with pytest.raises(urllib.error.HTTPError) as caught:
        call(engine, "PUT", [{"what": "interupt"}])

    with caught.value as refusal:
        assert refusal.code == 400
        assert "did you mean interrupt?" in json.load(refusal)["message"]
    assert call(engine, "GET") == put
    empty = {"faults": [], "schedule": None, "scheduled": []}
    assert call(engine, "DELETE") == empty


def test_route_has_no_other_method(engine: RunningEngine) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        call(engine, "POST", [])

    with caught.value as refusal:
        assert refusal.code == 405
