"""A trigger that is cancelled stops its job, unless another triggerer follows it for the same try."""

from __future__ import annotations

import asyncio
import os
import time
import uuid  # noqa: TC003  # pytest reads the annotations
from dataclasses import dataclass, field
from typing import Any

import pytest
from airflow.sdk.execution_time.comms import GetTaskStates, TaskStatesResult
from uuid6 import uuid7

from tests.plugins.test_job_trigger import WAITS, only_event, submit, wait_for
from trainyard_airflow.triggers.handover import FOLLOWER_KEY, follower, is_taken_over


@dataclass(frozen=True)
class TaskInstance:
    id: uuid.UUID = field(default_factory=uuid7)
    task_id: str = "train"
    dag_id: str = "dag"
    run_id: str = "run"
    map_index: int = -1


EARLIER, TRY = TaskInstance(), TaskInstance()
MINE = follower(TRY, "host:1")


@pytest.mark.parametrize(
    ("noted", "asks", "is_taken"),
    [
        (follower(TRY, "host:2"), MINE, True),
        (MINE, MINE, False),
        (follower(TaskInstance(), "host:2"), MINE, False),
        (None, MINE, False),
        (follower(TRY, "host:2", deferred_at=1.0), MINE, False),
        (follower(TRY, "host:2"), None, False),
    ],
    ids=[
        "another triggerer",
        "itself",
        "a later try",
        "nobody",
        "an earlier deferral",
        "outside a triggerer",
    ],
)
def test_only_another_triggerer_of_the_same_try_takes_over(noted, asks, is_taken):
    tags = [{"Key": "other", "Value": "x"}]
    tags += [] if noted is None else [{"Key": FOLLOWER_KEY, "Value": noted}]
    assert is_taken_over(tags, from_follower=asks) is is_taken


@pytest.mark.engine
@pytest.mark.parametrize(
    ("task_instance", "host", "is_stopped"),
    [(TRY, "another", False), (TaskInstance(), "this", True)],
    ids=["another triggerer took over", "the cleared task waits again"],
)
def test_cancelled_trigger_looks_who_follows_the_job(
    aws_connection, task, script, sagemaker, monkeypatch, task_instance, host, is_stopped
):
    first = submit(script(WAITS), task)
    deferred_at = first.arguments["deferred_at"] = time.time() - 3600
    again = type(first)(**first.serialize()[1])
    first.task_instance, again.task_instance = TRY, task_instance
    name = first.followed.job_name
    arn = sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobArn"]
    this_process = f"this:{os.getpid()}"

    def mark_of(trigger: Any, host: str) -> Any:
        return follower(trigger.task_instance, f"{host}:{os.getpid()}", deferred_at=deferred_at)

    def noted() -> Any:
        tags = {each["Key"]: each["Value"] for each in sagemaker.list_tags(ResourceArn=arn)["Tags"]}
        return tags.get(FOLLOWER_KEY)

    async def follow(trigger: Any, host: str) -> None:
        monkeypatch.setattr("socket.gethostname", lambda: host)
        following = asyncio.create_task(only_event(trigger))
        await wait_for(lambda: noted() == mark_of(trigger, host))
        following.cancel()

    async def take_over_and_cancel() -> None:
        await follow(first, "this")
        assert noted() == follower(TRY, this_process, deferred_at=deferred_at)
        await follow(again, host)
        monkeypatch.setattr("socket.gethostname", lambda: "this")
        await first.on_kill()

    asyncio.run(take_over_and_cancel())

    status = sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"]
    assert (status != "InProgress") is is_stopped
    if not is_stopped:
        sagemaker.stop_training_job(TrainingJobName=name)


class HandoverSupervisor:
    """Airflow's supervisor, which reports one state of the task."""

    def __init__(self, state: str) -> None:
        self.state = state

    async def asend(self, msg: GetTaskStates) -> TaskStatesResult:
        (task_id,) = msg.task_ids or ()
        return TaskStatesResult(task_states={"run": {task_id: self.state}})


@pytest.mark.engine
@pytest.mark.parametrize(
    ("state", "noted", "is_stopped"),
    [
        ("deferred", None, False),
        ("deferred", "this try", False),
        ("deferred", "a later try", True),
        ("deferred", "an earlier try", False),
        ("failed", None, True),
    ],
)
def test_job_of_a_task_that_is_still_deferred_goes_on(
    aws_connection, task, script, sagemaker, monkeypatch, state, noted, is_stopped
):
    monkeypatch.setattr(
        "airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS",
        HandoverSupervisor(state),
        raising=False,
    )
    monkeypatch.setattr("trainyard_airflow.triggers.kill_job.NOTE_LIMIT_S", 0.0)
    trigger = submit(script(WAITS), task)
    trigger.task_instance = TRY
    name = trigger.followed.job_name
    arn = sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobArn"]
    if noted:
        by = {"this try": TRY, "a later try": TaskInstance(), "an earlier try": EARLIER}[noted]
        mark = follower(by, "another:1", deferred_at=trigger.deferred_at)
        sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": FOLLOWER_KEY, "Value": mark}])

    asyncio.run(trigger.on_kill())

    status = sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"]
    assert (status != "InProgress") is is_stopped
    if not is_stopped:
        sagemaker.stop_training_job(TrainingJobName=name)


@pytest.mark.engine
@pytest.mark.parametrize("was_attached", [True, False])
def test_trigger_of_a_job_that_was_there_before_is_noted_at_once(
    aws_connection, task, script, sagemaker, was_attached
):
    trigger = submit(script(WAITS), task)
    trigger.arguments["echoed"] = {"was_attached": was_attached}
    trigger.arguments["deferred_at"] = time.time()
    trigger.task_instance = TRY
    name = trigger.followed.job_name
    arn = sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobArn"]

    async def follow_until_ended() -> None:
        following = asyncio.create_task(only_event(trigger))
        await wait_for(
            lambda: (
                sagemaker.describe_training_job(TrainingJobName=name)["SecondaryStatus"]
                == "Training"
            )
        )
        sagemaker.stop_training_job(TrainingJobName=name)
        await following

    asyncio.run(follow_until_ended())

    tags = {each["Key"] for each in sagemaker.list_tags(ResourceArn=arn)["Tags"]}
    assert (FOLLOWER_KEY in tags) is was_attached
