"""Asks a human how a training that a rule stopped goes on: Airflow's "Required Actions", answered there or by REST."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from include.rules.rule_retry import Remedy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from include.rules.rule_retry import RuleRetry

OPTIONS: Mapping[Remedy, str] = {
    Remedy.CONTINUE: "Continue from the last checkpoint",
    Remedy.LOWER: "Lower the learning rate",
    Remedy.SKIP: "Skip the bad batches",
    Remedy.END: "End the training",
}


def ask_human(
    context: Context,
    verdict: Mapping[str, Any],
    retry: RuleRetry,
    *,
    then: str,
    kwargs: dict[str, Any],
) -> NoReturn:
    """Park the task until a human has answered, or for `timeout_s`; it takes no worker and no triggerer meanwhile.

    Airflow keeps one question a task instance: a second one in the same try shows the first one's text, and the task's
    log has the new verdict.

    Args:
        context: the task's.
        verdict: of the training.
        retry: how long to wait, and what follows where nobody answers.
        then: the method that goes on, which gets Airflow's `event` and the keyword arguments.
        kwargs: those, JSON-safe.

    Raises:
        TaskAwaitingInput: always; Airflow parks the task by it.
    """
    from airflow.sdk.exceptions import TaskAwaitingInput
    from airflow.sdk.execution_time.hitl import upsert_hitl_detail

    upsert_hitl_detail(
        ti_id=context["ti"].id,
        options=list(OPTIONS.values()),
        subject=f"Rule {verdict['rule']} stopped the training at step {verdict['step']}: how does it go on?",
        body=question(verdict, retry),
        defaults=[OPTIONS[Remedy(retry.default)]],
        params={},  # Airflow 3.3 refuses None
    )
    timeout = timedelta(seconds=retry.timeout_s)
    raise TaskAwaitingInput(method_name=then, kwargs=kwargs, timeout=timeout)


def question(verdict: Mapping[str, Any], retry: RuleRetry) -> str:
    """Return what a human must know to decide, as Markdown."""
    wait, default = timedelta(seconds=retry.timeout_s), OPTIONS[Remedy(retry.default)]
    return f"""**{verdict["evidence"] or "No evidence was kept"}** (rule {verdict["rule"]}, step {verdict["step"]})

- Last checkpoint: {verdict["last_checkpoint"] or "none"}
- All verdicts: {verdict["rules_uri"]}

What may follow:

- *{OPTIONS[Remedy.CONTINUE]}*: nothing is changed.
- *{OPTIONS[Remedy.LOWER]}*: times {retry.factor:g}, from {retry.rollback_steps} step(s) before or earlier.
- *{OPTIONS[Remedy.SKIP]}*: from before the bad steps, without their batches.
- *{OPTIONS[Remedy.END]}*: the verdict is the result, and what follows is skipped.

Nothing is paid while this waits. Without an answer within {wait}: *{default}*.
"""


def answer_of(event: Mapping[str, Any], retry: RuleRetry) -> tuple[Remedy, str]:
    """Return the remedy that was chosen, and by whom; the plan's default where nobody answered.

    Args:
        event: what Airflow resumes a parked task with.
        retry: the plan's.
    """
    chosen = event.get("chosen_options") or ()
    by_option = {option: remedy for remedy, option in OPTIONS.items()}
    if event.get("timedout") or not chosen or chosen[0] not in by_option:
        return Remedy(retry.default), f"nobody within {timedelta(seconds=retry.timeout_s)}"
    user = event.get("responded_by_user") or {}
    return by_option[chosen[0]], str(user.get("name") or user.get("id") or "somebody")
