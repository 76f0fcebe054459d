"""State of a training plan, from a DescribeTrainingPlan response, and its use by a training. Pure.

Times are epoch seconds.

Source: "Training plans utilization for SageMaker training jobs", SageMaker developer guide, November 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from trainyard.errors import Finding, Severity
from trainyard.units import format_duration, format_utc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.specs.capacity_rung import CapacityRung

TERMINATION_LEAD_S = 1800
"""Seconds before the end of a window at which the service begins to terminate the instances."""
LEAST_USE_S = 300
"""A job starts in a window only if at least this time is left before it must stop."""
_FOR_TRAINING = "training-job"
_USABLE = ("Active", "Scheduled")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlanState:
    """A training plan as the service describes it.

    Attributes:
        windows: start and end of each window with reserved instances, in order.
        fee_usd: fee that was paid up front, as the service's text; None if the service reports no fee.
    """

    name: str
    arn: str
    status: str
    instance_type: str | None
    total_instances: int
    available_instances: int
    target_resources: tuple[str, ...]
    windows: tuple[tuple[float, float], ...]
    fee_usd: str | None = None

    @classmethod
    def from_describe(cls, answer: Mapping[str, Any]) -> Self:
        """Build the state from the response of DescribeTrainingPlan."""
        capacities = answer.get("ReservedCapacitySummaries", ())
        windows = sorted(
            (each["StartTime"].timestamp(), each["EndTime"].timestamp())
            for each in capacities
            if "StartTime" in each and "EndTime" in each
        )
        return cls(
            name=answer["TrainingPlanName"],
            arn=answer["TrainingPlanArn"],
            status=answer["Status"],
            instance_type=next((each["InstanceType"] for each in capacities), None),
            total_instances=answer.get("TotalInstanceCount", 0),
            available_instances=answer.get("AvailableInstanceCount", 0),
            target_resources=tuple(answer.get("TargetResources", ())),
            windows=tuple(windows),
            fee_usd=answer.get("UpfrontFee"),
        )

    def stops(self, *, reserve_s: float) -> tuple[float, ...]:
        """Return the times at which a job must be stopped, one per window.

        The service ends the instances 30 minutes before a window ends. The stop begins `reserve_s` seconds earlier.
        Worked: for a window that ends at 12:00, a reserve of 300 s gives 11:25.
        """
        return tuple(end - TERMINATION_LEAD_S - reserve_s for _, end in self.windows)

    def next_start(self, now: float, *, reserve_s: float) -> float | None:
        """Return the time from which a job can use the plan; None if no window has enough time left.

        In an open window, this is `now`; otherwise it is the start of the next window. A window is skipped if a job
        in it would have to be stopped after less than `LEAST_USE_S` seconds. `stops`, called with `reserve_s`,
        gives the time of that stop.
        """
        stops = self.stops(reserve_s=reserve_s)
        for (start, _), stop in zip(self.windows, stops, strict=True):
            if max(now, start) + LEAST_USE_S <= stop:
                return max(now, start)
        return None

    def seconds_left(self, now: float, *, reserve_s: float) -> float:
        """Return the seconds after `now` in which jobs can still use the plan, over all windows.

        In each window, a job can run until the stop time that `stops` returns for the same `reserve_s`.
        """
        stops = self.stops(reserve_s=reserve_s)
        return sum(
            max(0.0, stop - max(now, start))
            for (start, _), stop in zip(self.windows, stops, strict=True)
        )

    def closed(self, rung: CapacityRung, now: float, *, reserve_s: float) -> str | None:
        """Return why a job on a capacity tier (`rung`) cannot use the plan; None if it can.

        A plan also counts as closed if it begins later than the tier's `max_wait_s` allows.
        """
        if self.status not in _USABLE:
            return f"plan {self.name!r} is {self.status}"
        start = self.next_start(now, reserve_s=reserve_s)
        if start is None:
            return f"plan {self.name!r} has no window with {format_duration(LEAST_USE_S)} left"
        if rung.max_wait_s is not None and start - now > rung.max_wait_s:
            return (
                f"plan {self.name!r} begins in {format_duration(start - now)}, "
                f"but max_wait_s is {rung.max_wait_s}"
            )
        return None

    def findings(
        self,
        rung: CapacityRung,
        now: float,
        *,
        place: str,
        reserve_s: float,
        needed_s: float,
        has_other_rung: bool,
    ) -> Iterator[Finding]:
        """Yield the findings on a run's use of the plan.

        A finding is a warning if the training can run nevertheless, otherwise an error.

        Args:
            rung: the capacity tier that uses the plan.
            now: the current time, epoch seconds.
            place: path of the tier's plan in the conf, such as `capacity_ladder[0].training_plan`.
            reserve_s: seconds that are reserved to stop a job.
            needed_s: expected seconds of the training.
            has_other_rung: whether the training can continue outside of the plan.
        """
        yield from self._mismatches(rung, place)
        if reason := self.closed(rung, now, reserve_s=reserve_s):
            yield Finding(
                where=place,
                what=f"cannot be used now, because {reason}",
                allowed="a plan that has time left, and is Active or begins within max_wait_s",
                next_step="extend the plan, raise max_wait_s, or remove the tier",
                severity=Severity.WARNING if has_other_rung else Severity.ERROR,
            )
            return
        start = self.next_start(now, reserve_s=reserve_s)
        if start is not None and start > now:
            yield Finding(
                where=place,
                what=f"has not begun; the training waits until {format_utc(start)} UTC",
                got=f"plan {self.name!r} with the status {self.status}",
                next_step="set max_wait_s to limit the wait",
                severity=Severity.WARNING,
            )
        left_s = self.seconds_left(now, reserve_s=reserve_s)
        if left_s < needed_s:
            follows = (
                "the training continues on the next tier from its checkpoint"
                if has_other_rung
                else "the training ends unfinished"
            )
            yield Finding(
                where=place,
                what=f"has too little time left, so {follows}",
                got=f"{format_duration(left_s)} left in plan {self.name!r}, not counting the last "
                f"{format_duration(TERMINATION_LEAD_S + reserve_s)} of each of its time windows",
                allowed=f"at least {format_duration(needed_s)}, the expected length of the training",
                next_step="extend the plan, or add a tier on spot or on demand",
                severity=Severity.WARNING if has_other_rung else Severity.ERROR,
            )

    def _mismatches(self, rung: CapacityRung, place: str) -> Iterator[Finding]:
        if _FOR_TRAINING not in self.target_resources:
            yield Finding(
                where=place,
                what="is a plan for other resources",
                got=f"plan {self.name!r} for {', '.join(self.target_resources) or 'none'}",
                allowed=_FOR_TRAINING,
                next_step="use a plan for training jobs",
            )
        if self.instance_type != rung.instance_type:
            yield Finding(
                where=place,
                what="has another instance type than the tier",
                got=f"{rung.instance_type} in the tier, {self.instance_type or 'none'} in plan {self.name!r}",
                next_step=f"set instance_type to {self.instance_type}"
                if self.instance_type
                else "use a plan with instances",
            )
        count = rung.instance_count or 1
        if count > self.total_instances:
            yield Finding(
                where=place,
                what="has fewer instances than the tier",
                got=f"{count} in the tier, {self.total_instances} in plan {self.name!r}",
                next_step="lower instance_count, or use a larger plan",
            )
        elif self.status == "Active" and count > self.available_instances:
            yield Finding(
                where=place,
                what="has too few free instances; the training waits until other jobs of the plan end",
                got=f"{self.available_instances} free in plan {self.name!r}, {count} needed",
                next_step="set max_wait_s to limit the wait",
                severity=Severity.WARNING,
            )
