"""`RegisterCondition`: the condition on a metric for a model's registration, such as `accuracy >= 0.9`."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from trainyard.errors import Finding, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_FORM = re.compile(r"\s*(\S+)\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterCondition:
    """A metric's name, a comparison (`>=`, `<=`, `>`, `<`) and a number."""

    metric: str
    comparison: str
    threshold: float

    @classmethod
    def read(cls, text: str, *, where: str) -> Self:
        """Return the condition that a text spells.

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
            raise SpecError([wrong], subject=where)
        metric, comparison, threshold = found.groups()
        return cls(metric=metric, comparison=comparison, threshold=float(threshold))

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Return whether the metrics meet the condition; NaN never does.

        Raises:
            SpecError: the metric is not among them.
        """
        value = metrics.get(self.metric)
        if value is None:
            absent = Finding(
                where="register_when",
                what=f"has the metric {self.metric}, which was not measured",
                got=f"metrics {', '.join(sorted(metrics)) or 'none'}",
                next_step=f"measure {self.metric}, or use one of these metrics",
            )
            raise SpecError([absent], subject="register_when")
        return bool(_COMPARISONS[self.comparison](value, self.threshold))

    def __str__(self) -> str:
        """Return the condition as it is written."""
        return f"{self.metric} {self.comparison} {self.threshold:g}"
