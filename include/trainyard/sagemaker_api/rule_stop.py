"""Stop of a job by a rule. Tags of the job store the rule and the step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KEY, _ACTION_KEY = "trainyard:stopped-by-rule", "trainyard:rule-action"
_ONSET_KEY, _REMEDY_KEY = "trainyard:rule-onset", "trainyard:rule-remedy"
_NOT_IN_TAGS = re.compile(r"[^\w\s.:/=+\-@]")
_MOST_VALUE = 256
_STEP_IN_DETAILS = re.compile(r"at step (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleStop:
    """A rule's stop of a job: the rule's configured name, the step, and whether the task fails.

    Attributes:
        onset: step of the first of the violations that led to the stop; None if it is not known.
    """

    rule: str
    step: int | None
    fails: bool = False
    onset: int | None = None

    @property
    def tags(self) -> list[dict[str, str]]:
        """The job's tags that store this stop. Worked: rule NonFinite at step 77 is `NonFinite@77`."""
        name = _NOT_IN_TAGS.sub("_", self.rule)[: _MOST_VALUE - 20]
        action = {"Key": _ACTION_KEY, "Value": "fail" if self.fails else "stop"}
        onset = [] if self.onset is None else [{"Key": _ONSET_KEY, "Value": str(self.onset)}]
        return [{"Key": _KEY, "Value": f"{name}@{self.step}"}, action, *onset]

    @classmethod
    def from_tags(cls, tags: Iterable[Mapping[str, str]]) -> Self | None:
        """Return the stop in a job's tags, or None if no rule of Trainyard stopped it."""
        values = {each["Key"]: each["Value"] for each in tags}
        if _KEY not in values:
            return None
        rule, _, step = values[_KEY].rpartition("@")
        return cls(
            rule=rule,
            step=int(step) if step.isdigit() else None,
            fails=values.get(_ACTION_KEY) == "fail",
            onset=int(values[_ONSET_KEY]) if values.get(_ONSET_KEY, "").isdigit() else None,
        )


def remedy_tag(remedy: str) -> dict[str, str]:
    """Return the tag with the remedy that a human chose for a stopped job."""
    return {"Key": _REMEDY_KEY, "Value": remedy}


def remedy_of(tags: Iterable[Mapping[str, str]]) -> str | None:
    """Return the remedy that was chosen for a stopped job, or None if the job's tags have none.

    The remedy is a value of `rules.rule_retry.RetryRemedy`, such as `skip_batches`. A human chose it, or it
    is the default because nobody chose an allowed remedy in time.
    """
    return next((each["Value"] for each in tags if each["Key"] == _REMEDY_KEY), None)


def service_stop(
    evaluations: Iterable[Mapping[str, Any]],
) -> tuple[RuleStop, str] | None:
    """Return a stop of the job by a rule of the service's Debugger, with the rule's details; None if there was none.

    Args:
        evaluations: the job's `JobSnapshot.rule_evaluations`.
    """
    for each in evaluations:
        if each["status"] == "IssuesFound" and each["stops"]:
            step = _STEP_IN_DETAILS.search(each["details"])
            return RuleStop(rule=each["name"], step=int(step[1]) if step else None), each["details"]
    return None


def rule_evaluations(description: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return `name`, `status`, `details` and `stops` of each rule in a DescribeTrainingJob response.

    `stops` is True if an issue of the rule stops the job.
    """
    stopping = {
        each["RuleConfigurationName"]
        for each in description.get("DebugRuleConfigurations", ())
        if "stoptraining" in each.get("RuleParameters", {}).get("action_json", "")
    }
    return tuple(
        {
            "name": each.get("RuleConfigurationName", ""),
            "status": each.get("RuleEvaluationStatus", ""),
            "details": each.get("StatusDetails", ""),
            "stops": each.get("RuleConfigurationName") in stopping,
        }
        for member in ("DebugRuleEvaluationStatuses", "ProfilerRuleEvaluationStatuses")
        for each in description.get(member, ())
    )
