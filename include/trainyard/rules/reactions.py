"""Reactions to a rule that fires: a word, an ordered stop, or a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.errors import Severity
from trainyard.rules.configuration import configured_rules
from trainyard.rules.rule import RuleAction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.rules.evaluation import ConfiguredRule, Issue
    from trainyard.rules.watch_plan import WatchPlan


BY_SILENCE = frozenset({"Stalled", "StalledTrainingRule"})
"""Rules whose remedy is another try, which `heartbeat_timeout_s` gives: they stop a training only on request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """An issue, the name of its rule as configured, and what is to follow."""

    name: str
    rule: str
    issue: Issue
    action: RuleAction


class Reactions:
    """The action that follows an issue: that of its rule, else that of its severity."""

    def __init__(
        self,
        rules: Sequence[ConfiguredRule],
        *,
        on_error: RuleAction = RuleAction.STOP,
        on_warning: RuleAction = RuleAction.WARN,
    ) -> None:
        self._rules: Mapping[str, ConfiguredRule] = {each.name: each for each in rules}
        self._by_severity = {Severity.ERROR: on_error, Severity.WARNING: on_warning}

    def of(self, name: str, issue: Issue) -> Reaction:
        """Return what follows an issue of the rule with this configured name."""
        configured = self._rules[name]
        action = configured.action
        if action is None:
            is_silence = configured.rule.name in BY_SILENCE
            action = RuleAction.WARN if is_silence else self._by_severity[issue.severity]
        return Reaction(name=name, rule=configured.rule.name, issue=issue, action=action)

    def rule_named(self, name: str) -> ConfiguredRule | None:
        """Return the rule with this configured name; None where there is none."""
        return self._rules.get(name)

    def of_rule(self, rule: str) -> RuleAction | None:
        """Return what follows an issue of severity error of a rule of the catalogue; None where it is not evaluated."""
        found = next(
            (
                each
                for each in self._rules.values()
                if each.rule.name == rule and each.left_out is None
            ),
            None,
        )
        if found is None:
            return None
        return found.action or self._by_severity[Severity.ERROR]


def planned_reactions(plan: WatchPlan) -> Reactions:
    """Return what follows the issues of the plan's rules.

    Raises:
        SpecError: the rules are wrong.
    """
    rules = configured_rules(plan.rules)
    return Reactions(rules, on_error=plan.on_error, on_warning=plan.on_warning)


def worst_reaction(reactions: Sequence[Reaction]) -> Reaction | None:
    """Return the first of the reactions that asks for most; None for none."""
    order = list(RuleAction)
    return max(reactions, key=lambda each: order.index(each.action), default=None)
