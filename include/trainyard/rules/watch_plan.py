"""Plan of a watch: the rules, the reactions to their issues, the pause between looks. JSON-safe.

DAG files import this while they are parsed, so it knows no rule: `live_evaluation` and `reactions` read it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from trainyard.rules.rule import RuleAction

if TYPE_CHECKING:
    from collections.abc import Mapping

_POLL_INTERVAL_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """Plan of a watch, as a watcher gets it.

    Attributes:
        rules: as `trainyard.rules.configuration` reads them; empty for all in the robust profile.
        conf: of the run, for what rules must know of it.
        on_error, on_warning: what follows an issue of that severity whose rule says nothing else.
        on_stop: what follows a stop, as `trainyard.rules.rule_retry` reads it; empty for nothing.
        poll_interval_s: between two looks; None for what the connection says.
    """

    rules: tuple[Any, ...] = ()
    conf: Mapping[str, Any] = field(default_factory=dict)
    on_error: RuleAction = RuleAction.STOP
    on_warning: RuleAction = RuleAction.WARN
    on_stop: Mapping[str, Any] = field(default_factory=dict)
    poll_interval_s: float | None = None

    @property
    def pause_s(self) -> float:
        """The pause between two looks at the job."""
        return self.poll_interval_s or _POLL_INTERVAL_S

    def absence_s(self, before_s: float = 0.0) -> float:
        """Return for how long a job may not be there until somebody looks what the watched task does, in seconds.

        First two pauses, then twice as long each time, at most twelve pauses.

        Args:
            before_s: for how long it was waited before; 0 the first time.
        """
        return min(12 * self.pause_s, 2 * max(self.pause_s, before_s))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-safe data; `from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def of(cls, given: WatchPlan | Mapping[str, Any] | None) -> WatchPlan:
        """Return the plan that an operator was given: one, the mapping of its fields, or None for the defaults."""
        return given if isinstance(given, WatchPlan) else cls.from_dict(given or {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return what `to_dict` wrote."""
        return cls(
            **{
                **data,
                "rules": tuple(data.get("rules", ())),
                "on_error": RuleAction(data.get("on_error", RuleAction.STOP)),
                "on_warning": RuleAction(data.get("on_warning", RuleAction.WARN)),
            }
        )
