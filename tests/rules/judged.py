"""Runs one rule over records, as the tables of the rules' tests need it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainyard.rules.configuration import make_rule
from trainyard.rules.evaluation import ConfiguredRule, evaluate
from trainyard.rules.records import Facts
from trainyard.rules.rule import RuleProfile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.rules.evaluation import Verdict
    from trainyard.rules.records import Record


@dataclass(frozen=True, kw_only=True)
class JudgedCase:
    """A rule, a series at which it fires, and one next to it at which it does not.

    Attributes:
        fires: step of the first issue. onset: the first step of the fault; their difference is the latency.
        without: records that lack what the rule needs. needs: words of why it was not evaluated then.
    """

    rule: str
    faulty: Sequence[Record]
    healthy: Sequence[Record]
    without: Sequence[Record]
    fires: int
    onset: int
    says: str
    needs: str
    parameters: dict[str, Any] = field(default_factory=dict)
    profile: RuleProfile = RuleProfile.ROBUST
    severity: str = "warning"
    facts: Facts = field(default_factory=Facts)
    name: str = ""

    @property
    def id(self) -> str:
        """Name of the test."""
        return self.name or self.rule


def judged(
    rule: str,
    records: Sequence[Record],
    parameters: dict[str, Any] | None = None,
    *,
    profile: RuleProfile = RuleProfile.ROBUST,
    facts: Facts | None = None,
) -> Verdict:
    """Return the verdict of one rule."""
    made = make_rule(rule, parameters or {}, profile=profile)
    configured = ConfiguredRule(name=rule, rule=made, severity=made.SEVERITY)
    return evaluate([configured], records, facts)[0]


def check_case(case: JudgedCase) -> None:
    """Assert that the rule fires exactly where the case says, and only there."""
    options: dict[str, Any] = {"profile": case.profile, "facts": case.facts}

    verdict = judged(case.rule, case.faulty, case.parameters, **options)
    assert verdict.error is None
    assert verdict.status == "IssuesFound"
    first = verdict.issues[0]
    assert (first.step, first.severity) == (case.fires, case.severity)
    assert first.onset >= case.onset
    assert case.says in first.text

    neighbor = judged(case.rule, case.healthy, case.parameters, **options)
    assert neighbor.error is None
    assert (neighbor.status, neighbor.issues) == ("NoIssuesFound", ())
    assert neighbor.not_evaluated is None
    assert neighbor.num_judged > 0

    missing = judged(case.rule, case.without, case.parameters, **options)
    assert missing.error is None
    assert (missing.status, missing.num_judged) == ("NotEvaluated", 0)
    assert missing.not_evaluated is not None
    assert case.needs in missing.not_evaluated
