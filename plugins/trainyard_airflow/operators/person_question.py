"""`Question`: a task's question to a person in Airflow's "Required Actions", answered there or by REST."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import Context

    from trainyard.runs.notifier import Notice

QUESTION_XCOM_KEY = "trainyard_question"
"""Times of a task's question in epoch seconds: `asked_at`, and `answered_at`, which is None until the task resumes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with its possible answers.

    Attributes:
        body: the facts for the decision, as Markdown.
        default: the answer that applies if nobody answers within `timeout_s`.
        users: ids of the users who may answer. Without ids, every user with Airflow's permission may answer.
    """

    subject: str
    body: str
    options: Sequence[str]
    default: str
    timeout_s: float
    users: Sequence[str] = ()


def ask_person(
    context: Context,
    question: Question,
    *,
    then: str,
    kwargs: Mapping[str, Any],
    send: Callable[[Notice], object] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> NoReturn:
    """Suspend the task until a person has answered, or until the question's time limit (`timeout_s`) is over.

    A suspended task needs no worker. Airflow stores one question per try; a second question in the same try
    would show the first question's text.

    Args:
        context: the task's context.
        question: the question.
        then: name of the method that resumes the task, called with Airflow's `event` and `kwargs`.
        kwargs: further keyword arguments of that method, JSON-safe.
        send: sends the message about the question; None = no message.
        facts: step and cost so far, for the message.

    Raises:
        TaskAwaitingInput: always on Airflow 3.3 and later, which needs no triggerer for the wait.
        TaskDeferred: always on Airflow 3.2, whose triggerer waits for the answer.
    """
    from airflow.sdk.execution_time.hitl import upsert_hitl_detail

    choice: dict[str, Any] = {
        "ti_id": context["ti"].id,
        "options": list(question.options),
        "defaults": [question.default],
        "params": {},  # Airflow 3.3 refuses None
    }
    upsert_hitl_detail(
        **choice,
        subject=question.subject,
        body=question.body,
        assigned_users=[{"id": each, "name": each} for each in question.users] or None,
    )
    times = {"asked_at": time.time(), "answered_at": None}
    context["ti"].xcom_push(key=QUESTION_XCOM_KEY, value=times)
    if send is not None:
        send(_notice(context, question, facts or {}))
    timeout = timedelta(seconds=question.timeout_s)
    try:
        from airflow.sdk.exceptions import TaskAwaitingInput
    except ImportError:  # Airflow 3.2
        from airflow.providers.standard.triggers.hitl import HITLTrigger
        from airflow.sdk.exceptions import TaskDeferred

        trigger = HITLTrigger(**choice, timeout_datetime=datetime.now(UTC) + timeout)
        raise TaskDeferred(trigger=trigger, method_name=then, kwargs=dict(kwargs)) from None
    raise TaskAwaitingInput(method_name=then, kwargs=dict(kwargs), timeout=timeout)


def _notice(context: Context, question: Question, facts: Mapping[str, Any]) -> Notice:
    """Return the message about a question; each try of a task sends one at most."""
    from trainyard.runs.notifier import question_notice

    ti = context["ti"]
    return question_notice(
        subject=question.subject,
        event=f"{ti.task_id}[{ti.map_index}]:{ti.try_number}:question",
        default=question.default,
        timeout_s=question.timeout_s,
        facts=facts,
    )


def end_wait(context: Context) -> None:
    """Store the time at which the wait for a person ended, as an XCom; to be called when the task resumes."""
    ti: Any = context["ti"]
    times = ti.xcom_pull(task_ids=ti.task_id, key=QUESTION_XCOM_KEY, map_indexes=ti.map_index)
    if times:  # an earlier release stored none
        ti.xcom_push(key=QUESTION_XCOM_KEY, value={**times, "answered_at": time.time()})


def answer_in(event: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the chosen option and who chose it; the option is None if nobody answered in time.

    Args:
        event: Airflow's event that resumes the suspended task.
    """
    chosen = event.get("chosen_options") or ()
    if event.get("timedout") or not chosen:
        return None, "nobody"
    user = event.get("responded_by_user") or {}
    return str(chosen[0]), str(user.get("name") or user.get("id") or "somebody")
