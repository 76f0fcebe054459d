"""Reactions to a rule's issue: a warning, an orderly stop, or a failure."""

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
"""Rules on silence. They stop a training only on request: a silent job is retried after `heartbeat_timeout_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """An issue, the configured name of its rule, and the action to take."""

    name: str
    rule: str
    issue: Issue
    action: RuleAction


class Reactions:
    """Actions that follow issues.

    If a rule has no configured action, the action depends on the issue's severity. The rules in `BY_SILENCE`,
    which report silent jobs, are an exception: without a configured action, their issues always cause a
    warning.
    """

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
        """Return the reaction to an issue of the rule with this configured name."""
        configured = self._rules[name]
        action = self._action_of(configured, issue.severity)
        return Reaction(name=name, rule=configured.rule.name, issue=issue, action=action)

    def rule_named(self, name: str) -> ConfiguredRule | None:
        """Return the rule with this configured name, or None."""
        return self._rules.get(name)

    def of_rule(self, rule: str) -> RuleAction | None:
        """Return the action that follows this rule's issues of severity error; None if the rule is not evaluated.

        `rule` is the rule's name in the catalogue, not its configured name.
        """
        found = next(
            (
                each
                for each in self._rules.values()
                if each.rule.name == rule and each.left_out is None
            ),
            None,
        )
        return None if found is None else self._action_of(found, Severity.ERROR)

    def _action_of(self, configured: ConfiguredRule, severity: Severity) -> RuleAction:
        if configured.action is not None:
            return configured.action
        is_silence = configured.rule.name in BY_SILENCE
        return RuleAction.WARN if is_silence else self._by_severity[severity]


def planned_reactions(plan: WatchPlan) -> Reactions:
    """Return the reactions to the issues of the plan's rules.

    Raises:
        SpecError: the rules are invalid.
    """
    rules = configured_rules(plan.rules)
    return Reactions(rules, on_error=plan.on_error, on_warning=plan.on_warning)


def worst_reaction(reactions: Sequence[Reaction]) -> Reaction | None:
    """Return the reaction with the most severe action (the first on a tie), or None if there is none."""
    order = list(RuleAction)
    return max(reactions, key=lambda each: order.index(each.action), default=None)
