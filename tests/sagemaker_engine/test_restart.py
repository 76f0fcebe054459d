from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.state.jobs import ResourceKind
from sagemaker_engine.state.store import JobStore
from tests.contract.waiting import WaitClock, wait_until

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine

CLOCK = WaitClock(poll_s=0.05, limit_s=60)
TERMINAL = {"Completed", "Failed", "Stopped"}
GROUP = "/aws/sagemaker/TrainingJobs"


def start_job(engine: RunningEngine, name: str, script: str, *, max_run_s: int = 600) -> str:
    """Start a training job that runs a shell script and return its ARN."""
    answer = engine.client("sagemaker").create_training_job(
        TrainingJobName=name,
        RoleArn=engine.role_arn,
        AlgorithmSpecification={
            "TrainingImage": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/sh", "-c"],
            "ContainerArguments": [script],
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        },
        OutputDataConfig={"S3OutputPath": f"s3://{engine.bucket}/output"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": max_run_s},
        Tags=[{"Key": "team", "Value": "rail"}],
    )
    return str(answer["TrainingJobArn"])


def describe(engine: RunningEngine, name: str) -> dict[str, Any]:
    described = engine.client("sagemaker").describe_training_job(TrainingJobName=name)
    del described["ResponseMetadata"]
    return dict(described)


def reaches(engine: RunningEngine, name: str, *statuses: str) -> dict[str, Any]:
    return wait_until(
        lambda: describe(engine, name),
        lambda described: described["SecondaryStatus"] in statuses,
        clock=CLOCK,
        what=f"{', '.join(statuses)} of {name}",
    )


def messages(engine: RunningEngine, name: str) -> list[str]:
    logs = engine.client("logs")
    streams = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")
    return [
        event["message"]
        for stream in streams["logStreams"]
        for event in logs.get_log_events(
            logGroupName=GROUP, logStreamName=stream["logStreamName"], startFromHead=True
        )["events"]
    ]


def test_finished_work_outlives_a_killed_engine(own_engine: RunningEngine) -> None:
    arn = start_job(own_engine, "done", "echo loss=0.5; echo w > /opt/ml/model/weights")
    before = reaches(own_engine, "done", *TERMINAL)
    sagemaker, s3 = own_engine.client("sagemaker"), own_engine.client("s3")
    s3.put_object(Bucket=own_engine.bucket, Key="mine", Body=b"object")
    sagemaker.create_model_package_group(ModelPackageGroupName="group")
    package = sagemaker.create_model_package(
        ModelPackageGroupName="group",
        InferenceSpecification={
            "Containers": [
                {
                    "Image": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312",
                    "ModelDataUrl": before["ModelArtifacts"]["S3ModelArtifacts"],
                }
            ]
        },
    )["ModelPackageArn"]
    lines = messages(own_engine, "done")

    own_engine.restart()

    assert before["TrainingJobStatus"] == "Completed"
    assert describe(own_engine, "done") == before
    assert messages(own_engine, "done") == lines
    assert "loss=0.5" in lines
    sagemaker, s3 = own_engine.client("sagemaker"), own_engine.client("s3")
    assert s3.get_object(Bucket=own_engine.bucket, Key="mine")["Body"].read() == b"object"
    tags = sagemaker.list_tags(ResourceArn=arn)["Tags"]
    assert tags == [{"Key": "team", "Value": "rail"}]
    described = sagemaker.describe_model_package(ModelPackageName=package)
    assert described["ModelPackageStatus"] == "Completed"
    metrics = own_engine.client("cloudwatch").list_metrics(Namespace="/aws/sagemaker/TrainingJobs")[
        "Metrics"
    ]
    assert [metric["MetricName"] for metric in metrics] == ["loss"]


def test_running_job_outlives_a_killed_engine(own_engine: RunningEngine) -> None:
    start_job(own_engine, "long", "echo begun; sleep 600")
    reaches(own_engine, "long", "Training")
    own_engine.kill()
    own_engine.start()
    assert describe(own_engine, "long")["TrainingJobStatus"] == "InProgress"
    own_engine.client("sagemaker").stop_training_job(TrainingJobName="long")
    assert reaches(own_engine, "long", *TERMINAL)["TrainingJobStatus"] == "Stopped"
    assert "begun" in messages(own_engine, "long")


@pytest.mark.slow
def test_job_that_ended_while_no_engine_ran_is_completed(own_engine: RunningEngine) -> None:
    start_job(own_engine, "short", "sleep 3.75; echo ended")
    reaches(own_engine, "short", "Training")
    assert wait_until(lambda: runs("sleep 3.75"), bool, clock=CLOCK, what="the script")
    own_engine.kill()
    wait_until(
        lambda: runs("sleep 3.75"), lambda is_so: not is_so, clock=CLOCK, what="the script's end"
    )
    own_engine.start()
    assert reaches(own_engine, "short", *TERMINAL)["TrainingJobStatus"] == "Completed"
    assert "ended" in messages(own_engine, "short")


@pytest.mark.slow
def test_time_limit_of_a_job_holds_while_no_engine_runs(own_engine: RunningEngine) -> None:
    start_job(own_engine, "capped", "sleep 599.25", max_run_s=3)
    reaches(own_engine, "capped", "Training")
    assert wait_until(lambda: runs("sleep 599.25"), bool, clock=CLOCK, what="the script")
    own_engine.kill()
    wait_until(
        lambda: runs("sleep 599.25"), lambda is_so: not is_so, clock=CLOCK, what="the script's end"
    )
    own_engine.start()
    described = reaches(own_engine, "capped", "MaxRuntimeExceeded", *TERMINAL)
    assert described["SecondaryStatus"] == "MaxRuntimeExceeded"
    assert described["BillableTimeInSeconds"] < 60


def runs(command: str) -> bool:
    """Tell whether a process of this machine has these words in its command line."""
    words = command.encode().replace(b" ", b"\0")
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended meanwhile
            if words in path.read_bytes():
                return True
    return False


def test_restarted_engine_takes_the_port_of_the_one_before(own_engine: RunningEngine) -> None:
    before = own_engine.endpoint_url
    assert own_engine.restart().endpoint_url == before


def test_sigterm_stops_running_jobs(own_engine: RunningEngine) -> None:
    start_job(own_engine, "endless", "sleep 600")
    reaches(own_engine, "endless", "Training")
    assert own_engine.stop() == 0
    own_engine.start()
    assert describe(own_engine, "endless")["TrainingJobStatus"] == "Stopped"


def test_job_of_a_killed_runner_fails_with_the_reason(own_engine: RunningEngine) -> None:
    start_job(own_engine, "orphan", "sleep 600")
    reaches(own_engine, "orphan", "Training")
    store = JobStore(own_engine.root / "engine.sqlite")
    runner = store.get(ResourceKind.TRAINING, "orphan").runner_pid
    store.close()
    assert runner is not None
    os.kill(runner, signal.SIGKILL)
    described = reaches(own_engine, "orphan", *TERMINAL)
    assert described["TrainingJobStatus"] == "Failed"
    assert described["FailureReason"].startswith("InternalServerError: ")
