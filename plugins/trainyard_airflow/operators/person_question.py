"""`Question`: what a task asks a person by Airflow's "Required Actions", answered there or by REST."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with its possible answers.

    Attributes:
        body: what a person must know to decide, as Markdown.
        default: the answer that holds if nobody gives one within `timeout_s`.
    """

    subject: str
    body: str
    options: Sequence[str]
    default: str
    timeout_s: float


def ask_person(
    context: Context, question: Question, *, then: str, kwargs: Mapping[str, Any]
) -> NoReturn:
    """Park the task until a person has answered, or for `timeout_s`; it takes no worker and no triggerer meanwhile.

    Airflow keeps one question a try, and a second one would show the first one's text.

    Args:
        context: the task's.
        question: what is asked.
        then: the method that resumes, which gets Airflow's `event` and the keyword arguments.
        kwargs: those, JSON-safe.

    Raises:
        TaskAwaitingInput: always; Airflow parks the task by it.
        TaskDeferred: in its place on Airflow 3.2, whose triggerer waits for the answer.
    """
    from airflow.sdk.execution_time.hitl import upsert_hitl_detail

    choice: dict[str, Any] = {
        "ti_id": context["ti"].id,
        "options": list(question.options),
        "defaults": [question.default],
        "params": {},  # Airflow 3.3 refuses None
    }
    upsert_hitl_detail(**choice, subject=question.subject, body=question.body)
    timeout = timedelta(seconds=question.timeout_s)
    try:
        from airflow.sdk.exceptions import TaskAwaitingInput
    except ImportError:  # Airflow 3.2
        from airflow.providers.standard.triggers.hitl import HITLTrigger
        from airflow.sdk.exceptions import TaskDeferred

        trigger = HITLTrigger(**choice, timeout_datetime=datetime.now(UTC) + timeout)
        raise TaskDeferred(trigger=trigger, method_name=then, kwargs=dict(kwargs)) from None
    raise TaskAwaitingInput(method_name=then, kwargs=dict(kwargs), timeout=timeout)


def answer_in(event: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the option that was chosen, and by whom; None if nobody answered in time.

    Args:
        event: what Airflow resumes a parked task with.
    """
    chosen = event.get("chosen_options") or ()
    if event.get("timedout") or not chosen:
        return None, "nobody"
    user = event.get("responded_by_user") or {}
    return str(chosen[0]), str(user.get("name") or user.get("id") or "somebody")
