"""Retries after a stop by a rule: a changed training from an earlier step, or a question to a human."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.specs.reading import read_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MOST_RETRIES = 3
MOST_SKIPPED = 10
"""Largest number of steps whose batches a retry skips: a longer fault is not caused by single batches."""
LONGEST_WAIT_S = 30 * 24 * 3600.0


class RetryRemedy(StrEnum):
    """The remedy after a stop by a rule."""

    LOWER = "retry_with_lower_learning_rate"
    """Resume before the bad step with a lower learning rate."""
    SKIP = "skip_batches"
    """Resume before the bad steps and skip their batches."""
    CONTINUE = "continue"
    """Resume from the last checkpoint without changes."""
    END = "end"
    """Do not resume: the verdict is the task's result."""


ASK = "ask"
"""A human chooses the remedy."""
ACTIONS = (RetryRemedy.LOWER, RetryRemedy.SKIP, ASK)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRetry:
    """Policy for retries after a stop by a rule. A stop after the last retry is the task's result.

    Attributes:
        action: `RetryRemedy.LOWER` or `RetryRemedy.SKIP`; `ask` lets a human choose among all remedies.
        factor: factor for the learning rate; applied once per retry that lowers it.
        rollback_steps: least number of steps between the checkpoint to resume from and the issue. Without such a
            checkpoint the training starts from step 0.
        most: largest number of retries; 1 with `ask`.
        timeout_s: seconds that a human has for the answer.
        default: the remedy if no answer came in time.
        users: ids of the users who may answer, as in Airflow's auth manager; empty for all users with the permission.
    """

    action: str = RetryRemedy.LOWER
    factor: float = 0.3
    rollback_steps: int = 1
    most: int = 1
    timeout_s: float = 24 * 3600.0
    default: str = RetryRemedy.END
    users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            SpecError: there are faults; reports all of them at once.
        """
        found = list(self._findings())
        if found:
            raise SpecError(found, subject="on_rule_stop")

    def _findings(self) -> Iterator[Finding]:
        if self.action not in ACTIONS:
            yield _finding("action", "is an unknown action", self.action, ", ".join(ACTIONS))
        if not 0 < self.factor < 1:
            yield _finding(
                "factor", "does not lower the learning rate", self.factor, "above 0 and below 1"
            )
        if self.rollback_steps < 1:
            yield _finding("rollback_steps", "is too small", self.rollback_steps, "at least 1")
        if not 1 <= self.most <= MOST_RETRIES:
            yield _finding("most", "is out of range", self.most, f"1 to {MOST_RETRIES}")
        elif self.action == ASK and self.most > 1:
            yield Finding(
                where="most",
                what='must be 1 if action is "ask", because Airflow would show the second question with the text '
                "of the first",
                got=str(self.most),
                allowed="1",
                next_step='set "most" to 1, or choose another action',
            )
        if not 1 <= self.timeout_s <= LONGEST_WAIT_S:
            allowed = f"1 to {LONGEST_WAIT_S:.0f}"
            yield _finding("timeout_s", "is out of range", self.timeout_s, allowed)
        if self.default not in set(RetryRemedy):
            yield _finding("default", "is not a remedy", self.default, ", ".join(RetryRemedy))
        if self.users and self.action != ASK:
            allowed = f'"action": "{ASK}", or no users'
            yield _finding(
                "users",
                'has an effect only if action is "ask"',
                f'"action": "{self.action}"',
                allowed,
            )
        if not all(each.strip() for each in self.users):
            allowed = "ids of users of this Airflow"
            yield _finding("users", "names an empty user id", list(self.users), allowed)

    @property
    def lowers(self) -> bool:
        """True if a retry may lower the learning rate. The job's Create request must then contain a learning rate."""
        return self.action in {RetryRemedy.LOWER, ASK}


def skipped_steps(step: int, onset: int | None) -> range:
    """Return the steps whose batches a retry skips: from the first violation to the issue's step.

    These are at most the last `MOST_SKIPPED` steps. A rule without a step reports step 0: then no steps are skipped.
    Worked value: step 7 with the onset 5 gives 5, 6, 7.
    """
    first = step if onset is None else min(onset, step)
    return range(max(1, first, step - MOST_SKIPPED + 1), step + 1)


def steps_text(given: str | None, spans: Sequence[range]) -> str:
    """Return a new value of the hyperparameter `skip_steps`: `given` with these spans appended.

    The text of a span contains its first and its last step. Worked value: `given` = `3` and the span
    `range(5, 8)` give `3,5:7`.
    """
    texts = [str(each[0]) if len(each) == 1 else f"{each[0]}:{each[-1]}" for each in spans]
    return ",".join(dict.fromkeys([given, *texts] if given else texts))


def read_retry(on_stop: Mapping[str, Any]) -> RuleRetry | None:
    """Return the retry policy of a conf, or None if the conf has none.

    Raises:
        SpecError: the policy is invalid.
    """
    return read_spec(RuleRetry, on_stop, where="on_rule_stop") if on_stop else None


def retry_findings(on_stop: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return the findings for the retry policy of a conf; empty if it is valid."""
    try:
        read_retry(on_stop)
    except SpecError as error:
        return error.findings
    return ()


def _finding(where: str, what: str, got: object, allowed: str) -> Finding:
    return Finding(where=where, what=what, got=str(got), allowed=allowed)
