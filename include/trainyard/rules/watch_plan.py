"""Plan of a live evaluation: rules, reactions to their issues, and poll interval. JSON-safe.

DAG files import this module while they are parsed, so it imports no rule. `live_evaluation` and `reactions` read the
plan.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from trainyard.rules.rule import RuleAction

if TYPE_CHECKING:
    from collections.abc import Mapping

IDLE_RULE = "IdleAccelerators"
"""Rule that stops a training as its cost cap does: the model so far becomes the run's model, without a verdict."""
_POLL_INTERVAL_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """Plan of the live evaluation of a job's rules.

    Attributes:
        rules: the rules, in the form that `trainyard.rules.configuration` reads. If empty, all rules are
            evaluated with the parameters of the robust profile, except those that run only on request.
        conf: conf of the run, for the facts that rules need.
        on_error: default reaction to an issue of severity error.
        on_warning: default reaction to an issue of severity warning.
        on_stop: reaction after a rule stopped the training, in the form that `trainyard.rules.rule_retry`
            reads; empty for none.
        poll_interval_s: seconds between two polls. None uses the Airflow connection's value, or 15 if
            the connection has none.
    """

    rules: tuple[Any, ...] = ()
    conf: Mapping[str, Any] = field(default_factory=dict)
    on_error: RuleAction = RuleAction.STOP
    on_warning: RuleAction = RuleAction.WARN
    on_stop: Mapping[str, Any] = field(default_factory=dict)
    poll_interval_s: float | None = None

    @property
    def pause_s(self) -> float:
        """Seconds between two polls of the job."""
        return self.poll_interval_s or _POLL_INTERVAL_S

    def absence_s(self, before_s: float = 0.0) -> float:
        """Return the seconds to wait for a missing job before the state of the watched task is checked.

        The first wait is twice the time between two polls (`pause_s`). Each further wait is twice as long as the
        previous, at most 12 * `pause_s`.

        Args:
            before_s: seconds of the previous wait; 0 for the first.
        """
        return min(12 * self.pause_s, 2 * max(self.pause_s, before_s))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-safe data; `from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def of(cls, given: WatchPlan | Mapping[str, Any] | None) -> WatchPlan:
        """Return the plan of an operator's argument: a plan, a mapping of its fields, or None for the defaults."""
        return given if isinstance(given, WatchPlan) else cls.from_dict(given or {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the plan that a mapping describes, such as one that `to_dict` returned."""
        return cls(
            **{
                **data,
                "rules": tuple(data.get("rules", ())),
                "on_error": RuleAction(data.get("on_error", RuleAction.STOP)),
                "on_warning": RuleAction(data.get("on_warning", RuleAction.WARN)),
            }
        )


def with_idle_rule(rules: tuple[Any, ...], minutes: float | None) -> tuple[Any, ...]:
    """Return the run's rules, with the rule on idle accelerators if `minutes` is set.

    That rule stops the training after its accelerators were idle for `minutes`. Empty `rules` mean all rules: the
    result then has the entry `default`, which selects them.
    """
    if minutes is None:
        return rules
    idle = {"rule": IDLE_RULE, "action": RuleAction.STOP.value, "parameters": {"minutes": minutes}}
    return (*(rules or ("default",)), idle)
