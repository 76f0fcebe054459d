"""The steps that a `JobRun` returns: the task returns, follows a job, pauses, or asks a human."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.rules.rule_retry import RuleRetry
    from trainyard_airflow.jobs.quota_wait import QuotaWait
    from trainyard_airflow.triggers.stop_criteria import Patience


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The task returns.

    Attributes:
        result: the task's result, JSON-safe.
        is_verdict: whether a rule ended the training; downstream tasks are then skipped.
    """

    result: dict[str, Any]
    is_verdict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """The task waits for its job's end and continues with `JobRun.ended`.

    Attributes:
        facts: facts about the job, for its result.
        patience: limits after which the job is stopped, such as a time without progress.
        was_attached: whether the job existed before this start of the task.
    """

    job_name: str
    facts: Mapping[str, Any]
    patience: Patience
    was_attached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitStop:
    """The task waits for the end of a stopping job, and then continues with `JobRun.next(quota)`."""

    job_name: str
    quota: QuotaWait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitQuota:
    """The task waits before the next Create call of its job, and continues with `JobRun.next(quota)`.

    The cause is that the service rejected the job for lack of quota or capacity.

    Attributes:
        job_name: name of the job that the service rejected.
        seconds: duration of this pause.
        quota: progress of the whole wait, which can consist of many pauses.
    """

    job_name: str
    seconds: float
    quota: QuotaWait


@dataclass(frozen=True, slots=True, kw_only=True)
class AskHuman:
    """The task waits for a person to choose the remedy for a training that a rule stopped.

    Attributes:
        result: result of the stopped job.
        verdict: verdict on the stopped job.
    """

    retry: RuleRetry
    result: Mapping[str, Any]
    verdict: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Again:
    """A policy's request for the task's next attempt. `JobRun` converts it to a step."""


Step = Done | Follow | AwaitStop | AwaitQuota | AskHuman
