"""RetryStrategy by real jobs: what is the service's fault is tried again, nothing else is."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from sagemaker_engine.jobs.launching import recover
from sagemaker_engine.state.jobs import ResourceKind
from tests.sagemaker_engine.jobs.conftest import JobBench, put_faults, statuses

LIFE = ["Starting", "Downloading", "Training"]
RETRY: dict[str, Any] = {"RetryStrategy": {"MaximumRetryAttempts": 1}}


def test_lost_host_is_retried_as_often_as_the_strategy_allows(bench: JobBench) -> None:
    put_faults(bench, {"what": "host_failure", "at": {"step": 1}, "count": 2})

    row = bench.run("job", "echo loss=0.5 step=1; sleep 60", **RETRY)

    assert row.status == "Failed"
    assert row.state["FailureReason"].startswith("InternalServerError: ")
    assert statuses(row) == [*LIFE, *LIFE, "Failed"]


@pytest.mark.parametrize(
    ("members", "expected"),
    [(RETRY, [*LIFE, *LIFE, "Uploading", "Completed"]), ({}, [*LIFE, "Failed"])],
    ids=["with-a-strategy", "without"],
)
def test_lost_host_without_a_strategy_fails_the_job(
    bench: JobBench, members: dict[str, Any], expected: list[str]
) -> None:
    put_faults(bench, {"what": "host_failure", "at": {"state": "Training"}})

    assert statuses(bench.run("job", "sleep 0.3", **members)) == expected


def test_failing_script_is_not_retried(bench: JobBench) -> None:
    row = bench.run("job", "exit 3", **RETRY)

    assert statuses(row) == [*LIFE, "Uploading", "Failed"]


def test_job_of_a_killed_runner_starts_again_by_its_strategy(bench: JobBench) -> None:
    script = "cd /opt/ml/checkpoints; [ -e half ] || { echo half > half; echo loss=0.5; sleep 60; }"
    members = {
        "CheckpointConfig": {"S3Uri": "s3://jobs-bucket/checkpoints"},
        "algorithm": {"MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]},
    }
    bench.train("job", script, **members, **RETRY)
    bench.wait_for_line("job", "loss")
    row = bench.wait("job", lambda _: bool(bench.keys("checkpoints/")))
    assert row.runner_pid is not None
    os.kill(row.runner_pid, signal.SIGKILL)
    os.waitpid(row.runner_pid, 0)

    failed = recover(bench.store, bench.settings)

    row = bench.wait("job")
    assert failed == []
    assert statuses(row) == [*LIFE, *LIFE, "Uploading", "Completed"]
    assert row.state["FinalMetricDataList"][0]["Value"] == 0.5
    assert (
        len(list((bench.settings.job_folder(ResourceKind.TRAINING, "job") / "logs").iterdir())) == 2
    )
