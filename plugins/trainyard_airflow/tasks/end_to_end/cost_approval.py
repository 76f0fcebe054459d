"""Approval of a run's estimated cost by a person, before anything is paid."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainyard.errors import BudgetExceededError
from trainyard.units import format_duration, format_usd
from trainyard_airflow.operators.person_question import Question, answer_in, ask_person

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.sdk import Context

    from trainyard.planning.estimate.run_estimate import RunEstimate
    from trainyard.runs.notifier import Notice
    from trainyard.specs.base_run_conf import BaseRunConf

APPROVE, REJECT = "Start the run", "Do not start it"


def ask_for_approval(
    context: Context,
    conf: BaseRunConf,
    estimate: RunEstimate,
    *,
    then: str,
    result: Mapping[str, Any],
    send: Callable[[Notice], object] | None = None,
) -> None:
    """If a run's cost must be approved, suspend the task until a person has answered.

    An approval is needed if the expected cost exceeds the conf's `approval_above_usd`, or is unknown. Without
    `approval_above_usd` in the conf, no approval is needed, and the function returns.

    Args:
        context: preflight's context.
        conf: the run's conf.
        estimate: the run's estimate.
        then: name of the method that resumes the task, called with Airflow's `event` and `result`.
        result: preflight's result, JSON-safe.
        send: sends the message about the question; None = no message.

    Raises:
        TaskAwaitingInput: an approval is needed. See `ask_person` for Airflow 3.2.
    """
    limit = conf.approval_above_usd
    if limit is None or (estimate.usd is not None and estimate.usd.expected <= limit):
        return
    question = Question(
        subject=f"Start {context['ti'].dag_id}, run {context['ti'].run_id}?",
        body=_body(conf, estimate),
        options=(APPROVE, REJECT),
        default=REJECT,
        timeout_s=conf.approval_timeout_s,
    )
    facts = {
        "step": "before the first task that is paid",
        "cost so far": format_usd(0.0),
        "estimate": estimate,
    }
    ask_person(
        context, question, then=then, kwargs={"result": dict(result)}, send=send, facts=facts
    )


def check_approval(event: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    """Check that a person approved the run's cost.

    Args:
        event: Airflow's event that resumes the suspended task.
        result: preflight's result.

    Raises:
        BudgetExceededError: the person rejected the cost, or nobody answered in time.
    """
    answer, who = answer_in(event)
    if answer == APPROVE:
        return
    usd = result["plan"]["estimate"]["usd"]
    limit = result["conf"]["approval_above_usd"]
    raise BudgetExceededError(
        "nobody approved the run's cost in time"
        if answer is None
        else f"{who} rejected the run's cost",
        budget_usd=limit,
        needed_usd=usd["expected"] if usd else 0.0,
        where="approval_above_usd",
        got=f"an estimated cost of {format_usd(usd['expected'])}" if usd else "an unknown cost",
        allowed=f"{format_usd(limit)} without an approval",
        next_step="clear preflight to request the approval again, lower the cost, or raise approval_above_usd",
    )


def _body(conf: BaseRunConf, estimate: RunEstimate) -> str:
    lines = [f"Estimate: **{estimate}**", ""]
    for each in estimate.jobs:
        usd = "unknown price" if each.usd is None else format_usd(each.usd.expected)
        lines.append(f"- {each.task_id}: {usd}, {format_duration(each.seconds.expected)}")
    wait = timedelta(seconds=conf.approval_timeout_s)
    lines += [
        f"- approval above: {format_usd(conf.approval_above_usd)}",
        f"- cap: {'none' if conf.max_cost_usd is None else format_usd(conf.max_cost_usd)}",
        "",
        f"Nothing is paid meanwhile. Without an answer within {wait}: *{REJECT}*.",
    ]
    return "\n".join(lines)
