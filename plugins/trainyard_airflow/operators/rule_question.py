"""Question to a human after a stop by a rule, in Airflow's "Required Actions", answered there or by REST."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from trainyard.rules.rule_retry import RetryRemedy
from trainyard.units import at_step, format_usd
from trainyard_airflow.operators.person_question import Question, answer_in, ask_person

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.sdk import Context

    from trainyard.rules.rule_retry import RuleRetry
    from trainyard.runs.notifier import Notice

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
    send: Callable[[Notice], object] | None = None,
    cost_usd: float | None = None,
) -> NoReturn:
    """Suspend the task until a human has answered, at most for the retry's timeout; there is one question per try.

    Args:
        context: the task's context.
        verdict: verdict on the training.
        retry: the time limit, and the remedy if nobody answers.
        then: name of the method that resumes the task, called with Airflow's `event` and `kwargs`.
        kwargs: further keyword arguments of that method, JSON-safe.
        send: sends the message about the question; None = no message.
        cost_usd: cost of the task's jobs so far; None if it is unknown.

    Raises:
        TaskAwaitingInput: always on Airflow 3.3 and later; see `ask_person` for Airflow 3.2.
    """
    asked = Question(
        subject=f"Rule {verdict['rule']} stopped the training{at_step(verdict['step'])}: how should it continue?",
        body=question(verdict, retry),
        options=[OPTIONS[each] for each in remedies_of(verdict)],
        default=OPTIONS[default_of(retry, verdict)],
        timeout_s=retry.timeout_s,
        users=retry.users,
    )
    facts = {
        "step": verdict["step"] or "unknown",
        "cost so far": "unknown" if cost_usd is None else format_usd(cost_usd),
        "evidence": verdict["evidence"],
    }
    ask_person(context, asked, then=then, kwargs=kwargs, send=send, facts=facts)


def remedies_of(verdict: Mapping[str, Any]) -> list[RetryRemedy]:
    """Return the possible remedies after a verdict. `SKIP` is among them only if the verdict has a step."""
    return [each for each in OPTIONS if verdict["step"] or each is not RetryRemedy.SKIP]


def default_of(retry: RuleRetry, verdict: Mapping[str, Any]) -> RetryRemedy:
    """Return the remedy that applies if nobody answers.

    It is the default of `retry`, or `END` if the verdict does not permit this default.
    """
    default = RetryRemedy(retry.default)
    return default if default in remedies_of(verdict) else RetryRemedy.END


def question(verdict: Mapping[str, Any], retry: RuleRetry) -> str:
    """Return the facts for a human's decision, as Markdown."""
    wait, default = timedelta(seconds=retry.timeout_s), OPTIONS[default_of(retry, verdict)]
    lower = f"multiply it by {retry.factor:g}"
    if verdict["step"]:
        lower += f", and resume from a checkpoint at least {retry.rollback_steps} step(s) earlier"
    meanings = {
        RetryRemedy.CONTINUE: "no settings are changed.",
        RetryRemedy.LOWER: f"{lower}.",
        RetryRemedy.SKIP: "resume from a checkpoint before the bad steps, without their batches.",
        RetryRemedy.END: "the verdict is the result, and downstream tasks are skipped.",
    }
    choices = "\n".join(f"- *{OPTIONS[each]}*: {meanings[each]}" for each in remedies_of(verdict))
    return f"""**{verdict["evidence"] or "No evidence was kept"}** (rule {verdict["rule"]}{at_step(verdict["step"])})

- Last checkpoint: {verdict["last_checkpoint"] or "none"}
- All verdicts: {verdict["rules_uri"]}

Choices:

{choices}

Nothing is paid while this waits. Without an answer within {wait}: *{default}*.
"""


def answer_of(
    event: Mapping[str, Any], retry: RuleRetry, verdict: Mapping[str, Any]
) -> tuple[RetryRemedy, str]:
    """Return the chosen remedy and who chose it.

    If nobody answered, or the answer was not an option, the remedy is the one from `default_of`.

    Args:
        event: Airflow's event that resumes the suspended task.
        retry: the policy whose default applies.
        verdict: the verdict in the question.
    """
    chosen, who = answer_in(event)
    by_option = {OPTIONS[remedy]: remedy for remedy in remedies_of(verdict)}
    default = default_of(retry, verdict)
    if chosen is None:
        return default, f"nobody within {timedelta(seconds=retry.timeout_s)}"
    if chosen not in by_option:
        return default, f"the plan, because {who} chose {chosen!r}, which was not an option"
    return by_option[chosen], who
