"""How a job is watched: which rules, what follows their issues, how often to look. JSON-safe."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from include.rules.conf_facts import facts_of
from include.rules.configuration import configured_rules
from include.rules.live_evaluation import LiveEvaluation
from include.rules.reactions import Reactions
from include.rules.rule import RuleAction

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """What a watcher is given.

    Attributes:
        rules: as `include.rules.configuration` reads them; empty for all in the robust profile.
        conf: of the run, for what rules must know of it.
        on_error, on_warning: what follows an issue of that severity whose rule says nothing else.
        poll_interval_s: between two looks.
    """

    rules: tuple[Any, ...] = ()
    conf: Mapping[str, Any] = field(default_factory=dict)
    on_error: RuleAction = RuleAction.STOP
    on_warning: RuleAction = RuleAction.WARN
    poll_interval_s: float = 15.0

    def evaluation(self, *, since: float) -> LiveEvaluation:
        """Return the rules over a job that was created at `since`, epoch seconds.

        Raises:
            SpecError: the rules are wrong.
        """
        return LiveEvaluation(configured_rules(self.rules), facts_of(self.conf), since=since)

    def reactions(self) -> Reactions:
        """Return what follows the rules' issues.

        Raises:
            SpecError: the rules are wrong.
        """
        return Reactions(
            configured_rules(self.rules), on_error=self.on_error, on_warning=self.on_warning
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-safe data; `from_dict` reads it back."""
        return asdict(self)

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
