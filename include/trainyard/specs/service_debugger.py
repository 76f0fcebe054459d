"""Setting that selects the evaluator of a training's rules.

The evaluator is SageMaker with its Debugger and Profiler, or Trainyard's own evaluator. This module also
checks the setting and the number of rules.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from trainyard.errors import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.specs.training_job import TrainingJobSpec

MAX_SERVICE_RULES = 20
"""Rules of each kind per job (botocore, CreateTrainingJob, November 2026)."""


class Debugger(StrEnum):
    """Evaluator of a training's rules."""

    OWN = "own"
    """Trainyard's evaluator. The spec's fields for SageMaker's Debugger, if any, are sent unchanged."""
    SERVICE = "service"
    """SageMaker, with the spec's rules, if it supports the job and the account; otherwise Trainyard's evaluator."""


def debugger_findings(spec: TrainingJobSpec) -> Iterator[Finding]:
    """Yield the faults of the evaluator's settings, such as more rules than the service allows."""
    if spec.debugger not in set(Debugger):
        yield Finding(
            where="debugger",
            what="is not a known evaluator",
            got=repr(spec.debugger),
            allowed=", ".join(Debugger),
        )
    if spec.debugger == Debugger.SERVICE and not (spec.rules or spec.profiler_rules):
        yield Finding(
            where="debugger",
            what='is "service", but there is no rule to evaluate',
            next_step='set rules or profiler_rules, or set debugger to "own"',
        )
    for where in ("rules", "profiler_rules"):
        count = len(getattr(spec, where))
        if count > MAX_SERVICE_RULES:
            yield Finding(
                where=where,
                what="has more rules than SageMaker evaluates for a job",
                got=str(count),
                allowed=f"at most {MAX_SERVICE_RULES}",
                next_step="remove some, or use Trainyard's own rules, which have no such limit (docs/rules.md)",
            )
