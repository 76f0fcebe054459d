"""Condition on a metric for the registration of a model: `register_when`."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from trainyard.errors import Finding, SpecError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_FORM = re.compile(r"\s*(\S+)\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterCondition:
    """Condition for a model's registration: a metric's name, a comparison (`>=`, `<=`, `>`, `<`) and a number."""

    metric: str
    comparison: str
    threshold: float

    @classmethod
    def read(cls, text: str, *, where: str) -> Self:
        """Parse a condition such as `accuracy >= 0.9`.

        Raises:
            SpecError: the text is not a condition.
        """
        found = _FORM.fullmatch(text)
        if found is None:
            wrong = Finding(
                where=where,
                what="is not a condition",
                got=repr(text),
                allowed="a metric, >=, <=, > or <, and a number, such as accuracy >= 0.9",
            )
            raise SpecError(wrong, subject=where)
        metric, comparison, threshold = found.groups()
        return cls(metric=metric, comparison=comparison, threshold=float(threshold))

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Return whether the metrics meet the condition; NaN never does.

        Raises:
            SpecError: the metrics do not have the condition's metric.
        """
        value = metrics.get(self.metric)
        if value is None:
            absent = Finding(
                where="register_when",
                what=f"has the metric {self.metric!r}, which was not measured",
                got=f"the metrics {', '.join(map(repr, sorted(metrics))) or '(none)'}",
                next_step=f"measure {self.metric!r}, or use a metric that was measured",
            )
            raise SpecError(absent, subject="register_when")
        return bool(_COMPARISONS[self.comparison](value, self.threshold))

    def __str__(self) -> str:
        """Return the condition in the form that `read` parses."""
        return f"{self.metric} {self.comparison} {self.threshold:g}"


def unmeasured_findings(
    condition: RegisterCondition | None, measured: Collection[str], *, next_step: str
) -> Iterator[Finding]:
    """Yield an error if the run does not measure the condition's metric.

    Args:
        condition: the run's condition; None = no condition.
        measured: names of the metrics that the run measures.
        next_step: advice to the user on how to correct the error.
    """
    if condition and condition.metric not in measured:
        yield Finding(
            where="register_when",
            what="has a metric that the run does not measure",
            got=repr(condition.metric),
            allowed=", ".join(sorted(measured)) or None,
            next_step=next_step,
        )
