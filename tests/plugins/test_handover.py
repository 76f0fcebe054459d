"""A trigger that is cancelled stops its job, unless another triggerer follows it for the same try."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.plugins.test_job_trigger import WAITS, only_event, submit, wait_for
from trainyard_airflow.triggers.handover import FOLLOWER_KEY, follower, is_taken_over


@dataclass(frozen=True)
class TaskInstance:
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    task_id: str = "train"


TRY = TaskInstance()
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
