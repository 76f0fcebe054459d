"""`CapacityRung`: one tier of capacity for a job, with its limits on waiting and cost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.errors import Finding, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

INSTANCE_TYPE = r"ml\.[a-z0-9-]+\.[a-z0-9]+"
MOST_RUNGS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRung:
    """One rung of a capacity ladder: spot or on-demand instances of one type.

    Attributes:
        instance_count: number of instances; None = the job's.
        max_wait_s: longest uninterrupted wait for instances before the next rung is tried; None = the service's limit.
        max_cost_usd: limit for the cost of all attempts on this rung, at the on-demand price; None = no limit.
    """

    instance_type: str
    instance_count: int | None = None
    use_spot_instances: bool = True
    max_wait_s: int | None = None
    max_cost_usd: float | None = None

    def __post_init__(self) -> None:
        """Check the rung by itself.

        Raises:
            SpecError: there are faults; reports all of them at once.
        """
        findings = tuple(self._findings())
        if findings:
            raise SpecError(findings, subject="capacity rung")

    def __str__(self) -> str:
        """Return the rung in words: `2 x ml.g5.xlarge spot`."""
        count = "" if self.instance_count is None else f"{self.instance_count} x "
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
