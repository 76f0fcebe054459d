"""Asks a human how a training that a rule stopped goes on: Airflow's "Required Actions", answered there or by REST."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from trainyard.rules.rule_retry import RetryRemedy
from trainyard_airflow.operators.person_question import Question, answer_in, ask_person

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from trainyard.rules.rule_retry import RuleRetry

OPTIONS: Mapping[RetryRemedy, str] = {
    RetryRemedy.CONTINUE: "Continue from the last checkpoint",
    RetryRemedy.LOWER: "Lower the learning rate",
    RetryRemedy.SKIP: "Skip the bad batches",
    RetryRemedy.END: "End the training",
}


def ask_human(
    context: Context,
    verdict: Mapping[str, Any],
    retry: RuleRetry,
    *,
    then: str,
    kwargs: dict[str, Any],
) -> NoReturn:
    """Park the task until a human has answered, or for `timeout_s`; `RuleRetry` asks once a try.

    Args:
        context: the task's.
        verdict: of the training.
        retry: how long to wait, and what follows where nobody answers.
        then: the method that goes on, which gets Airflow's `event` and the keyword arguments.
        kwargs: those, JSON-safe.

    Raises:
        TaskAwaitingInput: always, or in its place what `ask_person` raises.
    """
    asked = Question(
        subject=f"Rule {verdict['rule']} stopped the training at step {verdict['step']}: how does it go on?",
        body=question(verdict, retry),
        options=[OPTIONS[each] for each in remedies_of(verdict)],
        default=OPTIONS[default_of(retry, verdict)],
        timeout_s=retry.timeout_s,
    )
    ask_person(context, asked, then=then, kwargs=kwargs)


def remedies_of(verdict: Mapping[str, Any]) -> list[RetryRemedy]:
    """Return what may follow a verdict: no batches are left out if the rule named no step."""
    return [each for each in OPTIONS if verdict["step"] or each is not RetryRemedy.SKIP]


def default_of(retry: RuleRetry, verdict: Mapping[str, Any]) -> RetryRemedy:
    """Return what follows without an answer: the plan's default, or the end where that cannot be."""
    default = RetryRemedy(retry.default)
    return default if default in remedies_of(verdict) else RetryRemedy.END


def question(verdict: Mapping[str, Any], retry: RuleRetry) -> str:
    """Return what a human must know to decide, as Markdown."""
    wait, default = timedelta(seconds=retry.timeout_s), OPTIONS[default_of(retry, verdict)]
    lower = f"times {retry.factor:g}"
    if verdict["step"]:
        lower += f", from {retry.rollback_steps} step(s) before or earlier"
    meanings = {
        RetryRemedy.CONTINUE: "nothing is changed.",
        RetryRemedy.LOWER: f"{lower}.",
        RetryRemedy.SKIP: "from before the bad steps, without their batches.",
        RetryRemedy.END: "the verdict is the result, and what follows is skipped.",
    }
    choices = "\n".join(f"- *{OPTIONS[each]}*: {meanings[each]}" for each in remedies_of(verdict))
    return f"""**{verdict["evidence"] or "No evidence was kept"}** (rule {verdict["rule"]}, step {verdict["step"]})

- Last checkpoint: {verdict["last_checkpoint"] or "none"}
- All verdicts: {verdict["rules_uri"]}

What may follow:

{choices}

Nothing is paid while this waits. Without an answer within {wait}: *{default}*.
"""


def answer_of(
    event: Mapping[str, Any], retry: RuleRetry, verdict: Mapping[str, Any]
) -> tuple[RetryRemedy, str]:
    """Return the remedy that was chosen, and by whom; the default where nobody answered, or nothing that was offered.

    Args:
        event: what Airflow resumes a parked task with.
        retry: the plan's.
        verdict: that the question was about.
    """
    chosen, who = answer_in(event)
    by_option = {OPTIONS[remedy]: remedy for remedy in remedies_of(verdict)}
    default = default_of(retry, verdict)
    if chosen is None:
        return default, f"nobody within {timedelta(seconds=retry.timeout_s)}"
    if chosen not in by_option:
        return default, f"the plan, for {who} said {chosen!r}, which was not offered"
    return by_option[chosen], who
