"""Checks of Debugger members in CreateTrainingJob and UpdateTrainingJob, in addition to the service model.

The service model itself checks the limits: 20 rules of each kind, 20 collections, and 256 characters per
name, key or value. Two cases are accepted on purpose:

- A job with Debugger rules that is distributed, or that uses checkpoints or spot capacity. The service
  accepts such a job, but evaluates no rules for it.
- A collection that is named twice. SDK v2 adds the collections of the rules to the user's collections.
"""

from __future__ import annotations

from posixpath import normpath
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.request_rules import is_folder_path, repeated
from sagemaker_engine.jobs.rule_actions import parsed_actions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Request = dict[str, Any]

INTERVALS_MS = (100, 200, 500, 1000, 5000, 60000)
_RESERVED = "/opt/ml/input"


def debugger_problems(request: Request) -> Iterator[str]:
    """Yield the errors in the Debugger and profiler members of a Create or Update request."""
    for member in ("DebugRuleConfigurations", "ProfilerRuleConfigurations"):
        yield from _rules(member, request.get(member) or ())
    if request.get("DebugRuleConfigurations") and "DebugHookConfig" not in request:
        yield "DebugHookConfig must be specified when DebugRuleConfigurations is specified."
    yield from _profiler(request)
    for member in ("DebugHookConfig", "TensorBoardOutputConfig"):
        path = (request.get(member) or {}).get("LocalPath")
        if path is not None and not _is_output_path(path):
            yield (
                f"Invalid LocalPath in {member}: {path}. It must be an absolute path outside of "
                f"{_RESERVED}."
            )


def _rules(member: str, rules: Sequence[Request]) -> Iterator[str]:
    if twice := repeated([each["RuleConfigurationName"] for each in rules]):
        yield f"RuleConfigurationName must be unique in {member}; got {twice} more than once."
    for each in rules:
        actions = (each.get("RuleParameters") or {}).get("action_json")
        if actions is not None and parsed_actions(actions) is None:
            yield (
                f"Invalid action_json in RuleParameters of {each['RuleConfigurationName']}: {actions}. It must be a "
                "list of the actions stoptraining, email and sms."
            )


def _profiler(request: Request) -> Iterator[str]:
    config = request.get("ProfilerConfig") or {}
    interval = config.get("ProfilingIntervalInMilliseconds")
    if interval is not None and interval not in INTERVALS_MS:
        allowed = ", ".join(map(str, INTERVALS_MS))
        yield (f"Invalid ProfilingIntervalInMilliseconds: {interval}. It must be one of {allowed}.")
    is_disabled = config.get("DisableProfiler")
    if is_disabled and request.get("ProfilerRuleConfigurations"):
        yield "ProfilerRuleConfigurations cannot be specified when DisableProfiler is true."


def _is_output_path(path: str) -> bool:
    folder = f"/{normpath(path).strip('/')}/"
    return is_folder_path(path) and not folder.startswith(f"{_RESERVED}/")
