"""What may follow a stop by a rule without anybody's help: another training, slower, from further back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from include.errors import Finding, SpecError
from include.specs.reading import read_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

ACTION = "retry_with_lower_learning_rate"
MOST_RETRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRetry:
    """Trains on after a rule's stop, `most` times at most; the stop after that is the result.

    Attributes:
        factor: of the learning rate, once for each stop.
        rollback_steps: how far before the rule's step, at least, the checkpoint is at which the training goes on; where
            there is none it begins again.
    """

    action: str = ACTION
    factor: float = 0.3
    rollback_steps: int = 1
    most: int = 1

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            SpecError: everything that is wrong, at once.
        """
        found = []
        if self.action != ACTION:
            found.append(Finding(where="action", what="is none", got=self.action, allowed=ACTION))
        if not 0 < self.factor < 1:
            found.append(
                Finding(
                    where="factor", what="does not lower", got=str(self.factor), allowed="0 to 1"
                )
            )
        if self.rollback_steps < 1:
            found.append(
                Finding(
                    where="rollback_steps",
                    what="is too small",
                    got=str(self.rollback_steps),
                    allowed="from 1",
                )
            )
        if not 1 <= self.most <= MOST_RETRIES:
            allowed = f"1 to {MOST_RETRIES}"
            found.append(
                Finding(where="most", what="is out of range", got=str(self.most), allowed=allowed)
            )
        if found:
            raise SpecError(found, subject="on_rule_stop")


def read_retry(on_stop: Mapping[str, Any]) -> RuleRetry | None:
    """Return the retry that a conf asks for; None for none.

    Raises:
        SpecError: it is wrong.
    """
    return read_spec(RuleRetry, on_stop, where="on_rule_stop") if on_stop else None


def retry_findings(on_stop: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return what is wrong with the retry that a conf asks for."""
    try:
        read_retry(on_stop)
    except SpecError as error:
        return error.findings
    return ()
