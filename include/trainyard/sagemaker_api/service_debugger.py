"""Settings of the service's Debugger and Profiler in training job specs and requests. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainyard.specs.service_debugger import Debugger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.specs.training_job import TrainingJobSpec

_MEMBERS = {
    "DebugHookConfig": "debugger_hook_config",
    "DebugRuleConfigurations": "rules",
    "ProfilerConfig": "profiler_config",
    "ProfilerRuleConfigurations": "profiler_rules",
}
"""Members of the service's Debugger and Profiler in a request, with their fields in the spec."""


OWN_EVALUATOR: Mapping[str, Any] = {
    "debugger": Debugger.OWN,
    "rules": (),
    "profiler_rules": (),
    "debugger_hook_config": None,
    "profiler_config": None,
}
"""Values that remove the service's Debugger and Profiler from a job's spec, by field."""


def service_evaluator(spec: TrainingJobSpec, *, evaluator_image: str) -> dict[str, Any]:
    """Return the job's rules, hook and profiler, with defaults for what the service's evaluator needs.

    By default, tensors and profiles are stored below the job's output. A rule that names an image keeps that image. A
    disabled profiler is unchanged, since the service accepts no S3 address for it.
    """
    place = {"S3OutputPath": spec.output_path}
    hook, profiler = spec.debugger_hook_config, spec.profiler_config
    is_off = spec.disable_profiler or (profiler or {}).get("DisableProfiler")
    has_profiler = not is_off and (spec.profiler_rules or profiler)
    return {
        "rules": _with_image(spec.rules, evaluator_image),
        "profiler_rules": _with_image(spec.profiler_rules, evaluator_image),
        "debugger_hook_config": {**place, **(hook or {})} if spec.rules or hook else hook,
        "profiler_config": {**place, **(profiler or {})} if has_profiler else profiler,
    }


def request_without_rules(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a CreateTrainingJob request without the members of the service's Debugger and Profiler."""
    return {name: value for name, value in request.items() if name not in _MEMBERS}


def settings_of_service(spec: TrainingJobSpec) -> str:
    """Return the names of the job's settings for SageMaker Debugger and Profiler as text, with the rules' names."""
    return _setting_names({name: getattr(spec, name) for name in _MEMBERS.values()})


def members_of_service(request: Mapping[str, Any]) -> str:
    """Return the names of the request's members for Debugger and Profiler as one text.

    Only members with a value are named. If a member is a list of rules, the names of the rules follow in
    parentheses, as in `DebugRuleConfigurations (Overfit)`.
    """
    return _setting_names({name: request.get(name) for name in _MEMBERS})


def _setting_names(settings: Mapping[str, Any]) -> str:
    """Return the names of the settings that have a value, as text.

    The names of a list's rules are in parentheses: `DebugHookConfig, DebugRuleConfigurations (Overfit)`.
    """
    return ", ".join(
        name
        if isinstance(value, Mapping)
        else f"{name} ({', '.join(str(each.get('RuleConfigurationName')) for each in value)})"
        for name, value in settings.items()
        if value
    )


def _with_image(
    rules: Sequence[Mapping[str, Any]], evaluator_image: str
) -> tuple[dict[str, Any], ...]:
    return tuple({"RuleEvaluatorImage": evaluator_image, **each} for each in rules)
