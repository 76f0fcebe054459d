"""Notifications of a run: the SNS topic, the messages, and the S3 markers of those already sent. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from trainyard.specs.monitoring import Notifications, Occasion
from trainyard.units import format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.runs.record import MoneyStop

_MOST_SUBJECT = 100  # characters of ASCII; SNS Publish
_MOST_MESSAGE = 200 * 1024  # bytes of UTF-8; SNS takes 256 KiB, attributes included


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One notification.

    Attributes:
        event: identifier of the event within the run, the same on every try, such as `<job>:interruption:2`.
        summary: one line that describes the event.
        facts: details of the event, by name.
    """

    occasion: Occasion
    event: str
    summary: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifier:
    """A run's SNS topic, and the S3 prefix of its markers (`place`)."""

    notifications: Notifications
    place: str
    dag_id: str
    run_id: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-safe data; `from_dict` reads it back."""
        return {
            "topic_arn": self.notifications.topic_arn,
            "on": [str(each) for each in self.notifications.on],
            "place": self.place,
            "dag_id": self.dag_id,
            "run_id": self.run_id,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | str | None) -> Self | None:
        """Return the notifier from the result of `to_dict`, or from its JSON text (a rendered template).

        Return None if there is no data.
        """
        members = json.loads(data) if isinstance(data, str) else data
        if not members:
            return None
        on = tuple(Occasion(each) for each in members["on"])
        return cls(
            notifications=Notifications(topic_arn=members["topic_arn"], on=on),
            place=members["place"],
            dag_id=members["dag_id"],
            run_id=members["run_id"],
        )

    def covers(self, notice: Notice) -> bool:
        """Return whether the run sends notifications of this kind."""
        return notice.occasion in self.notifications.on

    def marker(self, notice: Notice) -> str:
        """Return the address of the object that marks the notification as sent; it is the same on every try."""
        digest = hashlib.sha256(notice.event.encode()).hexdigest()[:20]
        return f"{self.place.rstrip('/')}/{notice.occasion}-{digest}.json"

    def message(self, notice: Notice) -> dict[str, Any]:
        """Return the SNS Publish request. For a FIFO topic it has a message group and a deduplication id."""
        facts = {"run": self.run_id, "dag": self.dag_id, **notice.facts}
        lines = [f"{notice.summary}.", "", *(f"{name}: {value}" for name, value in facts.items())]
        attributes = {
            "occasion": str(notice.occasion),
            "dag_id": self.dag_id,
            "run_id": self.run_id,
        }
        return {
            "TopicArn": self.notifications.topic_arn,
            "Subject": _subject(f"Trainyard {notice.occasion}: {notice.summary}"),
            "Message": _bounded("\n".join(lines)),
            "MessageAttributes": {
                name: {"DataType": "String", "StringValue": value}
                for name, value in attributes.items()
            },
            **(self._in_order(notice) if self.notifications.topic_arn.endswith(".fifo") else {}),
        }

    def _in_order(self, notice: Notice) -> dict[str, str]:
        event = f"{self.run_id} {notice.occasion} {notice.event}"
        return {
            "MessageGroupId": hashlib.sha256(self.run_id.encode()).hexdigest(),
            "MessageDeduplicationId": hashlib.sha256(event.encode()).hexdigest(),
        }


def interruption_notice(
    *,
    job_name: str,
    number: int,
    instances: str,
    step: int | None = None,
    checkpoint_step: int | None = None,
    cost_usd: float | None = None,
) -> Notice:
    """Return the notification of a job's spot interruption.

    Args:
        job_name: the job.
        number: number of the interruption, from 1.
        instances: the job's instances.
        step: the last completed step; None if it is unknown.
        checkpoint_step: step of the last stored checkpoint; None if it is unknown.
        cost_usd: upper bound of the job's cost so far; None if it is unknown.
    """
    place = "its last checkpoint"
    if checkpoint_step is not None:
        place = f"its checkpoint of step {checkpoint_step}"
    return Notice(
        occasion=Occasion.SPOT,
        event=f"{job_name}:interruption:{number}",
        summary=f"Spot capacity of job {job_name} was interrupted (interruption {number})",
        facts={
            "job": job_name,
            "instances": instances,
            "step": "unknown" if step is None else step,
            "cost so far": _amount(cost_usd, prefix="at most "),
            "next": f"the service waits for capacity, then the job resumes from {place}",
        },
    )


def stop_notice(
    stop: MoneyStop,
    *,
    by: str,
    run_cost_usd: float | None,
    model: str | None,
    report: str,
) -> Notice:
    """Return the notification of a training that was stopped to save money.

    Args:
        stop: the stop, as in the run's record.
        by: the cause, which completes `The training was stopped by ...`: `its cost cap` or `idle accelerators`.
        run_cost_usd: cost of the whole run; None if it is unknown.
        model: the registered version of the last model; None if it was not registered.
        report: the report's address.
    """
    left = f"the model so far is registered as {model}" if model else "the model so far is kept"
    return Notice(
        occasion=Occasion.BUDGET,
        event=f"stop:{by}",
        summary=f"The training was stopped by {by}",
        facts={
            "step": "unknown" if stop.step is None else stop.step,
            "cost of the training": _amount(stop.cost_usd),
            "cost of the run": _amount(run_cost_usd),
            "checkpoint": stop.last_checkpoint or "none",
            "next": f"{left}; to continue, start a run with a higher limit",
            "report": report,
        },
    )


def question_notice(
    *, subject: str, event: str, default: str, timeout_s: float, facts: Mapping[str, Any]
) -> Notice:
    """Return the notification of a question to a person.

    Args:
        subject: the question.
        event: identifier of the question within the run.
        default: the answer that applies if nobody answers.
        timeout_s: seconds until the default applies.
        facts: known facts, such as step and cost so far.
    """
    return Notice(
        occasion=Occasion.APPROVAL,
        event=event,
        summary=f"The run waits for an answer: {subject.rstrip('?')}",
        facts={
            **facts,
            "next": f"answer in Airflow's Required Actions within {format_duration(timeout_s)}; "
            f"otherwise: {default}",
        },
    )


def failure_notice(failure: Mapping[str, Any], *, try_number: int, report: str) -> Notice:
    """Return the notification of a failed run; if the budget was the reason, it is a budget notification.

    Args:
        failure: `task_id` and the error as `TrainingRunError.to_dict()`.
        try_number: the task's try; a task that was cleared and fails again is reported again.
        report: the report's address.
    """
    kind, task = str(failure.get("error") or "error"), failure.get("task_id")
    known = {name: failure.get(name) for name in ("where", "got", "next_step")}
    facts = {"task": task, "error": kind, **{k: v for k, v in known.items() if v}}
    is_budget = kind == "BudgetExceededError"
    return Notice(
        occasion=Occasion.BUDGET if is_budget else Occasion.FAILURE,
        event=f"{task}:{try_number}:{kind}",
        summary=f"The run failed in task {task}: {failure.get('what') or 'see its log'}",
        facts={**facts, "report": report},
    )


def rule_notice(
    *,
    job_name: str,
    rule: str,
    step: int,
    evidence: str,
    was_stopped: bool,
    cost_usd: float | None = None,
) -> Notice:
    """Return the notification of a rule's first issue in a job. The job has cost at most `cost_usd` so far."""
    return Notice(
        occasion=Occasion.RULE,
        event=f"{job_name}:{rule}",
        summary=f"Rule {rule} found an issue at step {step} of job {job_name}",
        facts={
            "job": job_name,
            "evidence": evidence,
            "cost so far": _amount(cost_usd, prefix="at most "),
            "then": "the training is stopped" if was_stopped else "the training continues",
        },
    )


def _amount(usd: float | None, *, prefix: str = "") -> str:
    return "unknown" if usd is None else f"{prefix}{format_usd(usd)}"


def _subject(text: str) -> str:
    """Return the text as a valid SNS subject: printable ASCII on one line, at most 100 characters."""
    plain = "".join(each if " " <= each <= "~" else "?" for each in " ".join(text.split()))
    return plain if len(plain) <= _MOST_SUBJECT else f"{plain[: _MOST_SUBJECT - 3]}..."


def _bounded(text: str) -> str:
    """Return the text cut to `_MOST_MESSAGE` bytes, at a whole UTF-8 character."""
    encoded = text.encode()
    if len(encoded) <= _MOST_MESSAGE:
        return text
    return encoded[: _MOST_MESSAGE - 3].decode(errors="ignore") + "..."
