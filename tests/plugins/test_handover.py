"""A trigger that is cancelled stops its job, unless another triggerer follows it for the same try."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest

from distributed_training.triggers.handover import FOLLOWER_KEY, follower, is_taken_over
from tests.plugins.test_job_trigger import WAITS, only_event, submit, wait_for


@dataclass(frozen=True)
class TaskInstance:
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    task_id: str = "train"


TRY = TaskInstance()
MINE = follower(TRY, 1)


@pytest.mark.parametrize(
    ("noted", "asks", "is_taken"),
    [
        (follower(TRY, 2), MINE, True),
        (MINE, MINE, False),
        (follower(TaskInstance(), 2), MINE, False),
        (None, MINE, False),
        (follower(TRY, 2), None, False),
    ],
    ids=["another triggerer", "itself", "a later try", "nobody", "outside a triggerer"],
)
def test_only_another_triggerer_of_the_same_try_takes_over(noted, asks, is_taken):
    tags = [{"Key": "other", "Value": "x"}]
    tags += [] if noted is None else [{"Key": FOLLOWER_KEY, "Value": noted}]
    assert is_taken_over(tags, from_follower=asks) is is_taken


@pytest.mark.engine
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("second", "is_stopped"),
    [((TRY, 2), False), ((TaskInstance(), 1), True)],
    ids=["another triggerer took over", "the cleared task waits again"],
)
def test_cancelled_trigger_looks_who_follows_the_job(
    aws_connection, task, script, sagemaker, second, is_stopped
):
    first = submit(script(WAITS), task)
    first.task_instance, first.triggerer_job_id = TRY, 1
    again = type(first)(**first.serialize()[1])
    again.task_instance, again.triggerer_job_id = second
    name = first.followed.job_name
    arn = sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobArn"]

    def noted() -> Any:
        tags = {each["Key"]: each["Value"] for each in sagemaker.list_tags(ResourceArn=arn)["Tags"]}
        return tags.get(FOLLOWER_KEY)

    async def take_over_and_cancel() -> None:
        for trigger in (first, again):
            following = asyncio.create_task(only_event(trigger))
            mark = follower(trigger.task_instance, trigger.triggerer_job_id)
            await wait_for(lambda mark=mark: noted() == mark)
            following.cancel()
        await first.on_kill()

    asyncio.run(take_over_and_cancel())

    status = sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"]
    assert (status != "InProgress") is is_stopped
    if not is_stopped:
        sagemaker.stop_training_job(TrainingJobName=name)
