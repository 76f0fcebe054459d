from __future__ import annotations

from typing import Any

import pytest

from sagemaker_engine.jobs.life_cycle import seconds_on_instances
from sagemaker_engine.jobs.limits import Limits, may_retry, num_attempts, num_retries
from sagemaker_engine.jobs.supervision import Ending

HISTORY = [
    *(("Starting", 2.0), ("Downloading", 3.0), ("Training", 10.0), ("Interrupted", 100.0)),
    *(("Starting", 1.0), ("Downloading", 4.0), ("Training", 20.0)),
    *(("Starting", 1.0), ("Downloading", 5.0), ("Training", 40.0), ("Stopping", 0.5)),
    *(("Uploading", 1.5), ("Stopped", 0.0)),
]


def transitions(history: list[tuple[str, float]]) -> list[dict[str, Any]]:
    found, now = [], 1000.0
    for status, lasted_s in history:
        found.append({"Status": status, "StartTime": now, "EndTime": now + lasted_s})
        now += lasted_s
    return found


def test_history_tells_starts_and_retries() -> None:
    assert num_attempts(transitions(HISTORY)) == 3
    assert num_retries(transitions(HISTORY)) == 1


@pytest.mark.parametrize(("allowed", "expected"), [(None, False), (1, False), (2, True)])
def test_retries_end_with_the_strategy(allowed: int | None, expected: bool) -> None:
    strategy = {} if allowed is None else {"RetryStrategy": {"MaximumRetryAttempts": allowed}}

    assert may_retry(strategy, transitions(HISTORY)) is expected


def test_time_on_instances_leaves_out_starts_and_interruptions() -> None:
    assert seconds_on_instances(transitions(HISTORY)) == 3 + 10 + 4 + 20 + 5 + 40 + 0.5 + 1.5


def test_stop_of_a_job_that_waits_is_no_time_on_instances() -> None:
    waiting = [("Starting", 5.0), ("Stopping", 3.0), ("Stopped", 0.0)]

    assert seconds_on_instances(transitions(waiting)) == 0


def test_time_to_train_is_what_all_attempts_have_left() -> None:
    limits = Limits.of({"StoppingCondition": {"MaxRuntimeInSeconds": 75}}, created_at=0.0)

    assert limits.runtime_left_s(transitions(HISTORY)) == 75 - 10 - 20 - 40


def test_waiting_is_over_at_the_wait_time_since_creation() -> None:
    now = 1000.0
    limits = Limits(max_runtime_s=1, max_wait_s=60, created_at=1000.0, clock=lambda: now)

    assert limits.has_waited_too_long() is None
    now = 1060.0
    assert limits.has_waited_too_long() is Ending.MAX_WAIT_TIME_EXCEEDED
