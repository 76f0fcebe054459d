"""What the default rules blame a training for, and whether they would stop it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainyard.rules.configuration import default_rules
from trainyard.rules.evaluation import Evaluation
from trainyard.rules.reactions import Reactions
from trainyard.rules.rule import RuleAction

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainyard.rules.evaluation import Issue
    from trainyard.rules.records import Facts, Record


@dataclass(frozen=True, kw_only=True)
class Blame:
    """The first issue of each rule that stops, and of each that warns; what failed of the rules themselves."""

    stops: dict[str, Issue] = field(default_factory=dict)
    warnings: dict[str, Issue] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def blame(records: Iterable[Record], facts: Facts) -> Blame:
    """Return what the rules say by default: all of them, in the robust profile, errors stop."""
    rules = default_rules()
    evaluation, reactions, found = Evaluation(rules, facts), Reactions(rules), Blame()
    for name, issue in evaluation.feed(records):
        stops = reactions.of(name, issue).action is not RuleAction.WARN
        (found.stops if stops else found.warnings).setdefault(name, issue)
    found.errors.update({each.name: each.error for each in evaluation.verdicts() if each.error})
    return found
