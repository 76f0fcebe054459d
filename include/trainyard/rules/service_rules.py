"""Rules for SageMaker's Debugger and Profiler, and conversion of their results to issues. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, Severity
from trainyard.rules.catalogue import RULES
from trainyard.rules.configuration import DEFAULT, configured_rules
from trainyard.rules.evaluation import ConfiguredRule, Issue, RuleStatus, Verdict
from trainyard.rules.rule import Origin
from trainyard.specs.service_debugger import MAX_SERVICE_RULES, Debugger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_STEP = re.compile(r"at step (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRules:
    """A run's rules for SageMaker, in the form of a request but without the URIs of the rules' images.

    `debugger` has the entries of `DebugRuleConfigurations`, `profiler` those of `ProfilerRuleConfigurations`.
    """

    debugger: tuple[dict[str, Any], ...] = ()
    profiler: tuple[dict[str, Any], ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is a rule."""
        return bool(self.debugger or self.profiler)


def service_rules(wanted: Sequence[object]) -> ServiceRules:
    """Return the rules of a conf that SageMaker can evaluate, in the form of a request.

    All other rules are left out. Parameters that are not set have AWS's defaults.

    Worked value: `{"rule": "Overfit", "parameters": {"patience": 2}}` becomes `{"RuleConfigurationName": "Overfit",
    "RuleParameters": {"rule_to_invoke": "Overfit", "patience": "2"}}`.

    Raises:
        SpecError: a rule is not valid.
    """
    named = [each for each in wanted if each != DEFAULT]
    configured = configured_rules(named) if named else ()
    pairs = [
        (each, _configuration(given, each))
        for given, each in zip(named, configured, strict=True)
        if each.rule.name in RULES and each.rule.ORIGIN is not Origin.TRAINYARD
    ]
    return ServiceRules(
        debugger=tuple(made for each, made in pairs if each.rule.ORIGIN is Origin.DEBUGGER),
        profiler=tuple(made for each, made in pairs if each.rule.ORIGIN is Origin.PROFILER),
    )


def service_findings(debugger: str, wanted: Sequence[object]) -> Iterator[Finding]:
    """Yield the reasons why SageMaker cannot evaluate the rules of a conf.

    Yield nothing if Trainyard evaluates the rules.

    Args:
        debugger: the evaluator in the conf, `own` (Trainyard) or `service` (SageMaker).
        wanted: the rules in the conf.

    Raises:
        SpecError: a rule is not valid.
    """
    if debugger != Debugger.SERVICE:
        return
    rules = service_rules(wanted)
    if not rules:
        names = (name for name, rule in RULES.items() if rule.ORIGIN is not Origin.TRAINYARD)
        yield Finding(
            where="debugger",
            what='is "service", but SageMaker supports none of the configured rules',
            got=", ".join(str(each) for each in wanted) or "no rules",
            allowed=", ".join(names),
            next_step='add one of these to rules, or set debugger to "own"',
        )
    for kind, those in (("Debugger", rules.debugger), ("Profiler", rules.profiler)):
        if len(those) > MAX_SERVICE_RULES:
            yield Finding(
                where="rules",
                what=f"has more rules of SageMaker's {kind} than SageMaker evaluates for a job",
                got=str(len(those)),
                allowed=f"at most {MAX_SERVICE_RULES}",
                next_step='remove some, or set debugger to "own": Trainyard has no such limit',
            )


def unwatched_findings(debugger: str, *, is_watched: bool) -> Iterator[Finding]:
    """Yield a warning if the service evaluates the rules of a training that Trainyard does not watch."""
    if debugger == Debugger.SERVICE and not is_watched:
        yield Finding(
            where="watch_rules",
            what="is off, so nothing stops the training when SageMaker finds an issue, and Trainyard's own rules are "
            "evaluated only after the training, for the report",
            got='false with debugger "service"',
            allowed="true",
            next_step='set watch_rules to true, or debugger to "own"',
            severity=Severity.WARNING,
        )


def _configuration(given: object, configured: ConfiguredRule) -> dict[str, Any]:
    if isinstance(given, Mapping) and "RuleParameters" in given:
        return dict(given)
    own = given.get("parameters", {}) if isinstance(given, Mapping) else {}
    parameters = {"rule_to_invoke": configured.rule.name, **{k: _text(v) for k, v in own.items()}}
    return {"RuleConfigurationName": configured.name, "RuleParameters": parameters}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def judged_elsewhere(evaluations: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the rules that the service evaluates, without those whose evaluator failed.

    Args:
        evaluations: the job's `JobSnapshot.rule_evaluations`.
    """
    return frozenset(each["name"] for each in evaluations if each["status"] != RuleStatus.ERROR)


SERVICE_STATUSES = tuple(each for each in RuleStatus if each is not RuleStatus.NOT_EVALUATED)


def known_status(status: str) -> RuleStatus | None:
    """Return the `RuleStatus` of a status of the service, or None if it is unknown."""
    return RuleStatus(status) if status in SERVICE_STATUSES else None


def with_service(
    verdicts: Sequence[Verdict], evaluations: Sequence[Mapping[str, Any]]
) -> list[Verdict]:
    """Return the service's verdicts on the rules that it evaluates, and Trainyard's verdicts on the others.

    If the service's evaluator failed, Trainyard's verdict is kept. An unknown status counts as in progress.

    Args:
        verdicts: verdicts of Trainyard's evaluator, including rules that it left to the service.
        evaluations: the job's `JobSnapshot.rule_evaluations`.
    """
    by_name = {each["name"]: each for each in evaluations}
    return [_with_evaluation(each, by_name.get(each.name)) for each in verdicts]


def _with_evaluation(verdict: Verdict, evaluation: Mapping[str, Any] | None) -> Verdict:
    if evaluation is None or evaluation["status"] == RuleStatus.ERROR:
        return verdict
    issue = service_issue(evaluation, verdict.severity)
    return replace(
        verdict,
        status=known_status(evaluation["status"]) or RuleStatus.IN_PROGRESS,
        not_evaluated=None,
        issues=() if issue is None else (issue,),
        num_issues=0 if issue is None else 1,
        error=None,
    )


def service_issue(evaluation: Mapping[str, Any], severity: Severity) -> Issue | None:
    """Return the issue that the service found with a rule, or None if it found none.

    The status `Error` means that the service's evaluator failed; it is not an issue of the training.

    Args:
        evaluation: one entry of `JobSnapshot.rule_evaluations`.
        severity: severity of the rule.
    """
    if evaluation["status"] != "IssuesFound":
        return None
    details = str(evaluation["details"])
    found = _STEP.search(details)
    step = int(found[1]) if found else 0
    return Issue(
        step=step,
        onset=step,
        rank=0,
        key="",
        severity=severity,
        text=" ".join(details.split()) or "the service's Debugger found an issue",
    )
