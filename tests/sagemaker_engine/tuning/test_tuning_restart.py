"""A search survives the death of its engine and of its trials: none runs twice, none is lost."""

from __future__ import annotations

import io
import os
import signal
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.state.jobs import ResourceKind
from sagemaker_engine.state.store import JobStore
from tests.contract.waiting import WaitClock, wait_until
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine

CLOCK = WaitClock(poll_s=0.05, limit_s=EVENT_LIMIT_S)
NAME = "search"


def start_search(engine: RunningEngine, script: str, *, jobs: int = 4) -> None:
    """Start a Random search, two trials at a time; a trial runs the shell script."""
    put_source(engine, script)
    engine.client("sagemaker").create_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=NAME,
        HyperParameterTuningJobConfig={
            "Strategy": "Random",
            "RandomSeed": 3,
            "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": jobs, "MaxParallelTrainingJobs": 2},
            "ParameterRanges": {
                "ContinuousParameterRanges": [{"Name": "rate", "MinValue": "0", "MaxValue": "1"}]
            },
        },
        TrainingJobDefinition={
            "StaticHyperParameters": {
                "sagemaker_program": "train.sh",
                "sagemaker_submit_directory": f"s3://{engine.bucket}/source.tar.gz",
            },
            "AlgorithmSpecification": {
                "TrainingImage": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312",
                "TrainingInputMode": "File",
                "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
            },
            "RoleArn": engine.role_arn,
            "OutputDataConfig": {"S3OutputPath": f"s3://{engine.bucket}/output"},
            "ResourceConfig": {
                "InstanceType": "ml.m5.large",
                "InstanceCount": 1,
                "VolumeSizeInGB": 1,
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        },
    )


def put_source(engine: RunningEngine, script: str) -> None:
    """Store the archive that the trials run."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        member = tarfile.TarInfo("train.sh")
        member.size = len(script.encode())
        tar.addfile(member, io.BytesIO(script.encode()))
    engine.client("s3").put_object(Bucket=engine.bucket, Key="source.tar.gz", Body=data.getvalue())


def trials(engine: RunningEngine) -> list[dict[str, Any]]:
    answer = engine.client("sagemaker").list_training_jobs_for_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=NAME, MaxResults=100
    )
    return list(answer["TrainingJobSummaries"])


def wait_for_trials(engine: RunningEngine, num: int) -> list[dict[str, Any]]:
    """Wait until so many trials train and return all there are."""
    return wait_until(
        lambda: trials(engine),
        lambda found: sum("TrainingStartTime" in each for each in found) >= num,
        clock=CLOCK,
        what=f"{num} trials that train",
    )


def finished(engine: RunningEngine) -> dict[str, Any]:
    sagemaker = engine.client("sagemaker")
    return wait_until(
        lambda: dict(
            sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=NAME)
        ),
        lambda seen: seen["HyperParameterTuningJobStatus"] in {"Completed", "Failed", "Stopped"},
        clock=CLOCK,
        what="the end of the search",
    )


@pytest.mark.slow
def test_search_goes_on_after_its_engine_was_killed(own_engine: RunningEngine) -> None:
    start_search(own_engine, "sleep 1; echo loss=0.5\n")
    before = wait_for_trials(own_engine, 2)
    own_engine.restart()
    described = finished(own_engine)
    after = trials(own_engine)
    assert described["HyperParameterTuningJobStatus"] == "Completed"
    assert described["TrainingJobStatusCounters"]["Completed"] == 4
    assert {each["TrainingJobName"] for each in before} < {e["TrainingJobName"] for e in after}
    jobs = own_engine.client("sagemaker").list_training_jobs(MaxResults=100)
    assert len(jobs["TrainingJobSummaries"]) == 4
    points = {each["TunedHyperParameters"]["rate"] for each in after}
    assert len(points) == 4
    for each in after:  # No trial's log holds a second start.
        assert log_of(own_engine, each["TrainingJobName"]).count('"loss=0.5"') == 1


def log_of(engine: RunningEngine, name: str) -> str:
    folder = engine.root / "jobs" / "training" / name / "logs"
    return "".join(path.read_text() for path in sorted(folder.glob("*.jsonl")))


@pytest.mark.slow
def test_trial_whose_runner_was_killed_is_counted_and_the_search_goes_on(
    own_engine: RunningEngine,
) -> None:
    start_search(own_engine, "sleep 3; echo loss=0.5\n", jobs=3)
    victim = wait_for_trials(own_engine, 1)[0]["TrainingJobName"]
    store = JobStore(own_engine.root / "engine.sqlite")
    runner = store.get(ResourceKind.TRAINING, victim).runner_pid
    store.close()
    assert runner is not None
    os.kill(runner, signal.SIGKILL)
    described = finished(own_engine)
    assert described["HyperParameterTuningJobStatus"] == "Completed"
    counters = described["TrainingJobStatusCounters"]
    assert (counters["Completed"], counters["RetryableError"]) == (2, 1)
    assert described["BestTrainingJob"]["TrainingJobName"] != victim


@pytest.mark.slow
def test_sigterm_stops_the_search(own_engine: RunningEngine) -> None:
    start_search(own_engine, "sleep 600\n")
    wait_for_trials(own_engine, 1)
    assert own_engine.stop() == 0
    own_engine.start()
    assert finished(own_engine)["HyperParameterTuningJobStatus"] == "Stopped"
    assert len(trials(own_engine)) == 2
