"""A training job's rules as the service's Debugger is to have them, and the job without them. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from include.specs.service_debugger import Debugger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from include.specs.training_job import TrainingJobSpec

_MEMBERS = (
    "DebugHookConfig",
    "DebugRuleConfigurations",
    "ProfilerConfig",
    "ProfilerRuleConfigurations",
)


def judged_by_service(spec: TrainingJobSpec, *, evaluator_image: str) -> TrainingJobSpec:
    """Return the job with what its rules need and the author left open: image, hook and profiler.

    Tensors and profiles go below the job's output. A rule with an image of its own keeps it.
    """
    place = {"S3OutputPath": spec.output_path}
    return replace(
        spec,
        rules=_with_image(spec.rules, evaluator_image),
        profiler_rules=_with_image(spec.profiler_rules, evaluator_image),
        debugger_hook_config=spec.debugger_hook_config or (place if spec.rules else None),
        profiler_config=spec.profiler_config or (place if spec.profiler_rules else None),
    )


def judged_by_us(spec: TrainingJobSpec) -> TrainingJobSpec:
    """Return the job without anything of the service's Debugger and Profiler."""
    return replace(
        spec,
        debugger=Debugger.OWN,
        rules=(),
        profiler_rules=(),
        debugger_hook_config=None,
        profiler_config=None,
    )


def request_without_rules(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a CreateTrainingJob request without anything of the service's Debugger and Profiler."""
    return {name: value for name, value in request.items() if name not in _MEMBERS}


def _with_image(
    rules: Sequence[Mapping[str, Any]], evaluator_image: str
) -> tuple[dict[str, Any], ...]:
    return tuple({"RuleEvaluatorImage": evaluator_image, **each} for each in rules)
