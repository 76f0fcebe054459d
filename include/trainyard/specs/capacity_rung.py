"""`CapacityRung`: one tier of capacity for a job, with its limits on waiting and cost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.errors import Finding, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAINING_PLAN = r"(?:arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]+:\d{12}:training-plan/)?[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,63}"
INSTANCE_TYPE = r"ml\.[a-z0-9-]+\.[a-z0-9]+"
MOST_RUNGS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRung:
    """One rung of a capacity ladder: instances of one type on spot, on demand or in a training plan.

    Attributes:
        training_plan: name or ARN of the plan, which is paid up front; a rung in a plan is never on spot.
        instance_count: number of instances; None = the job's.
        max_wait_s: longest uninterrupted wait for instances before the next rung is tried; None = the service's limit.
        max_cost_usd: limit for the cost of all attempts on this rung, at the on-demand price; None = no limit.
    """

    instance_type: str
    instance_count: int | None = None
    use_spot_instances: bool = True
    training_plan: str | None = None
    max_wait_s: int | None = None
    max_cost_usd: float | None = None

    def __post_init__(self) -> None:
        """Check the fields of the rung. A training plan turns spot off.

        Raises:
            SpecError: fields are invalid; the error lists all faults.
        """
        if self.training_plan is not None:
            object.__setattr__(self, "use_spot_instances", False)
        findings = tuple(self._findings())
        if findings:
            raise SpecError(findings, subject="capacity tier")

    def __str__(self) -> str:
        """Return the rung in words: `2 x ml.g5.xlarge spot`, `1 x ml.p5.4xlarge in plan 'p5-november'`."""
        count = "" if self.instance_count is None else f"{self.instance_count} x "
        if self.training_plan is not None:
            return f"{count}{self.instance_type} in plan {plan_name(self.training_plan)!r}"
        return f"{count}{self.instance_type} {'spot' if self.use_spot_instances else 'on demand'}"

    def _findings(self) -> Iterator[Finding]:
        if not re.fullmatch(INSTANCE_TYPE, self.instance_type):
            yield Finding(
                where="instance_type",
                what="is malformed",
                got=repr(self.instance_type),
                allowed="ml.<family>.<size>",
                next_step="write an instance type such as ml.m5.large",
            )
        if self.training_plan is not None and not re.fullmatch(TRAINING_PLAN, self.training_plan):
            yield malformed_plan(self.training_plan)
        for name in ("instance_count", "max_wait_s"):
            value = getattr(self, name)
            if value is not None and value < 1:
                yield Finding(where=name, what="is too small", got=str(value), allowed="at least 1")
        if self.max_cost_usd is not None and self.max_cost_usd <= 0:
            yield Finding(
                where="max_cost_usd",
                what="is too small",
                got=f"{self.max_cost_usd:g}",
                allowed="more than 0",
            )


def plan_name(training_plan: str) -> str:
    """Return the name of a training plan that is given by name or ARN."""
    return training_plan.rpartition("/")[2]


def malformed_plan(training_plan: str) -> Finding:
    """Return the finding for a text that is neither the name nor the ARN of a training plan."""
    return Finding(
        where="training_plan",
        what="is malformed",
        got=repr(training_plan),
        allowed="a name of up to 64 letters, digits and hyphens, or an ARN",
        next_step="write the name of the plan, such as p5-november",
    )
