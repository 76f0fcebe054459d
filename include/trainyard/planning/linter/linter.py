"""Linter of a training job's spec: all findings, errors first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainyard.catalog.instances import catalogue
from trainyard.catalog.strategy_support import SupportTable, support_table
from trainyard.errors import Finding, Severity, SpecError
from trainyard.planning.linter.job_facts import job_facts
from trainyard.planning.linter.rules import rule_findings
from trainyard.specs.built_in_rules import missing_hyperparameters
from trainyard.specs.service_debugger import Debugger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.planning.linter.facts import JobFacts
    from trainyard.specs.training_job import TrainingJobSpec

_OF_DEBUGGER = frozenset({"debugger_hook_config", "rules", "profiler_rules"})
_SAVES_NOTHING = "debugger-hook-not-in-image"
"""Id of the table's warning for an image without a debugger hook. The script may bring a hook. Without a hook,
Debugger's rules have no tensors to evaluate."""


def lint(spec: TrainingJobSpec, *, table: SupportTable | None = None) -> tuple[Finding, ...]:
    """Return all errors and warnings about a training job, errors first.

    Args:
        spec: the job. Its own validation has passed already.
        table: supported strategies and invalid combinations; None for the table of the repository.
    """
    table = table or support_table()
    found = dict.fromkeys(each for facts in job_facts(spec) for each in _of_facts(facts, table))
    found |= dict.fromkeys(missing_hyperparameters(spec))
    if spec.debugger == Debugger.SERVICE:
        refused = _refusals(spec, tuple(found), table)
        found = dict.fromkeys(_as_fallback(each) if each in refused else each for each in found)
    return tuple(sorted(found, key=lambda each: each.severity is not Severity.ERROR))


def debugger_refusals(spec: TrainingJobSpec) -> tuple[Finding, ...]:
    """Return the findings that prevent the service's Debugger from evaluating this job.

    They are the errors about Debugger, and the warning about rules on an image that saves no tensors. The service would
    start these rules, but they would find nothing.
    """
    table = support_table()
    return _refusals(spec, lint(replace(spec, debugger=Debugger.OWN), table=table), table)


def _refusals(
    spec: TrainingJobSpec, found: tuple[Finding, ...], table: SupportTable
) -> tuple[Finding, ...]:
    nothing_saved = {each.what for each in table.combinations if each.id == _SAVES_NOTHING}
    return tuple(
        each
        for each in found
        if each.field in _OF_DEBUGGER
        and (each.severity is Severity.ERROR or (spec.rules and each.what in nothing_saved))
    )


def _as_fallback(finding: Finding) -> Finding:
    """Return a finding about SageMaker's Debugger as a warning, because Trainyard evaluates the rules instead.

    The next step of the warning gives this reason and the setting that removes the warning.
    """
    instead = 'Trainyard evaluates the rules instead of SageMaker; set debugger to "own" to remove this warning'
    return replace(finding, severity=Severity.WARNING, next_step=instead)


def _of_facts(facts: JobFacts, table: SupportTable) -> Iterator[Finding]:
    yield from _unknown_type(facts)
    for each in (*_combinations(facts, table), *rule_findings(facts, table)):
        yield each.at(facts.where) if facts.where else each


def _combinations(facts: JobFacts, table: SupportTable) -> Iterator[Finding]:
    for each in table.combinations:
        if all(facts.holds(condition) for condition in each.when):
            yield Finding(
                where=each.where,
                what=each.what,
                next_step=each.fix,
                severity=each.severity,
                why=each.why,
                source=each.source,
            )


def _unknown_type(facts: JobFacts) -> Iterator[Finding]:
    """Yield a warning if the instance type is not in the catalogue. The service may still support the type."""
    try:
        catalogue().find(facts.instance_type)
    except SpecError as error:
        for each in error.findings:
            yield replace(each, severity=Severity.WARNING)
