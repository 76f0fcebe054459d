"""A run as it is followed: which job is shown while its task is tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainyard.stack.aws import JobView, cost_so_far
from trainyard.stack.following import RunFollower


class ScriptedAirflow:
    """What an api-server answers of a run with one task."""

    def __init__(self) -> None:
        self.task: dict[str, Any] = {"task_id": "train", "id": "1", "operator": "TrainingJob"}
        self.job_name: str | None = None

    def now(self, state: str, *, try_number: int, job_name: str | None) -> None:
        """Let the task be in this state, with this job pushed."""
        self.task |= {"state": state, "try_number": try_number}
        self.job_name = job_name

    def task_order(self, _dag_id: str) -> list[str]:
        return ["train"]

    def run(self, *_: str) -> dict[str, Any]:
        return {"state": "running", "conf": {"max_cost_usd": 1.0}}

    def tasks(self, *_: str) -> list[dict[str, Any]]:
        return [self.task]

    def xcom(self, *_: str) -> str | None:
        return self.job_name


class Aws:
    """An endpoint that knows every job."""

    def job(self, name: str, *, kind: str) -> JobView:
        return JobView(name=name, status=kind, metrics={}, cost_usd=0.25)


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("TrainingJobOperator", "training"),
        ("ProcessingJobOperator", "processing"),
        ("TuneHyperparametersOperator", "tuning"),
    ],
)
def test_a_job_is_looked_for_among_those_of_its_kind(operator: str, kind: str) -> None:
    api = ScriptedAirflow()
    api.task["operator"] = operator
    api.now("deferred", try_number=1, job_name="j")

    job = RunFollower(api=api, aws=Aws(), dag_id="dag", run_id="run").poll().job

    assert job is not None
    assert job.status == kind


def test_a_second_try_shows_its_own_job_once_it_has_one() -> None:
    api = ScriptedAirflow()
    follower = RunFollower(api=api, aws=Aws(), dag_id="dag", run_id="run")

    def shown(state: str, *, try_number: int, job_name: str | None) -> str | None:
        api.now(state, try_number=try_number, job_name=job_name)
        job = follower.poll().job
        return job and job.name

    assert shown("queued", try_number=1, job_name=None) is None
    assert shown("running", try_number=1, job_name=None) is None
    assert shown("deferred", try_number=1, job_name="train-1") == "train-1"
    assert shown("running", try_number=2, job_name="train-1") == "train-1"
    assert shown("deferred", try_number=2, job_name="train-a2") == "train-a2"


def test_cost_of_a_run_is_that_of_every_job_once() -> None:
    api = ScriptedAirflow()
    follower = RunFollower(api=api, aws=Aws(), dag_id="dag", run_id="run")

    for name in ("train-1", "train-1", "train-2"):
        api.now("running", try_number=1, job_name=name)
        view = follower.poll()

    assert (view.cost_usd, view.max_cost_usd) == (0.5, 1.0)


def test_cost_so_far_goes_by_the_bill_once_there_is_one() -> None:
    now = datetime(2026, 1, 1, 1, tzinfo=UTC)
    job: dict[str, Any] = {
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2},
        "TrainingStartTime": now - timedelta(hours=1),
    }

    assert cost_so_far(job, now=now) == pytest.approx(0.23)
    assert cost_so_far({**job, "BillableTimeInSeconds": 1800}, now=now) == pytest.approx(0.115)
    assert cost_so_far({**job, "ResourceConfig": {"InstanceType": "ml.z9"}}, now=now) is None
    assert cost_so_far({"ResourceConfig": job["ResourceConfig"]}, now=now) == 0.0
