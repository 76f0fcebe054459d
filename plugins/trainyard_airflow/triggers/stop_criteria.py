"""Criteria to stop a running job: missing heartbeats, a long wait, its cost cap, or its training plan's end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from trainyard.job_status import JobStatus
from trainyard.sagemaker_api.snapshot import WAITING_STATUSES
from trainyard.sagemaker_api.stop_cause import StopCause
from trainyard.tuning.ceiling import Ceiling
from trainyard.units import format_duration
from trainyard_airflow.hooks.known_members import known_members

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.sagemaker_api.snapshot import JobSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits after which a job is stopped: on missing heartbeats, waiting and cost. JSON-safe through `to_dict`.

    Attributes:
        heartbeat_timeout_s: seconds without a heartbeat, once there has been a first one; 0 = no limit.
        max_wait_s: seconds of one uninterrupted wait for instances; None = no limit.
        max_billed_s: billed seconds per instance at which the job is stopped for its cost cap; None = no cap.
        usd_per_s: price of all instances in USD per second, for the log of a job with a cost cap.
        ceiling: limits of a search; None for any other job.
        plan_stops: times at which the job is stopped because a window of its training plan ends, epoch seconds.
    """

    heartbeat_timeout_s: int = 0
    max_wait_s: int | None = None
    max_billed_s: float | None = None
    usd_per_s: float | None = None
    ceiling: Ceiling | None = None
    plan_stops: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-safe data; `from_dict` reads it back."""
        unset = {
            name for name in ("max_billed_s", "usd_per_s", "ceiling") if getattr(self, name) is None
        }
        unset |= set() if self.plan_stops else {"plan_stops"}
        return {name: value for name, value in asdict(self).items() if name not in unset}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the limits from the result of `to_dict`; unknown keys of later releases are ignored.

        Raises:
            TypeError: `data` or its ceiling is not a mapping.
        """
        ceiling = data.get("ceiling")
        known = {**known_members(cls, data), "ceiling": None}
        known["plan_stops"] = tuple(data.get("plan_stops", ()))
        if ceiling is not None:
            known["ceiling"] = Ceiling(**known_members(Ceiling, ceiling))
        return cls(**known)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReason:
    """Reason to stop a job: the cause, and its description for the log."""

    cause: StopCause
    text: str


def reason_to_stop(
    snapshot: JobSnapshot, *, patience: Patience, heartbeat_at: float | None, now: float
) -> StopReason | None:
    """Return the reason to stop the job now, or None.

    The limit on missing heartbeats applies only in the status `Training`, and only after a first heartbeat. The time
    counts from the last heartbeat, or from the last start of training on the instances if that is later.

    Args:
        snapshot: the job.
        patience: its limits.
        heartbeat_at: time of its last heartbeat, epoch seconds; None if there was none or the log could not be read.
        now: the service's clock, epoch seconds.
    """
    if snapshot.status != JobStatus.IN_PROGRESS:
        return None
    if reason := _capped(snapshot, patience, now) or _window_ends(snapshot, patience, now):
        return reason
    waited_s = _waited_s(snapshot, now)
    if patience.max_wait_s is not None and waited_s is not None and waited_s >= patience.max_wait_s:
        return StopReason(
            cause=StopCause.NO_CAPACITY,
            text=f"it has waited for instances for {format_duration(waited_s)} "
            f"(max_wait_s {patience.max_wait_s})",
        )
    if not patience.heartbeat_timeout_s or heartbeat_at is None:
        return None
    if snapshot.secondary_status != "Training":
        return None
    began = max((t.start for t in snapshot.transitions if t.status == "Training"), default=0.0)
    silent_s = now - max(heartbeat_at, began)
    if silent_s < patience.heartbeat_timeout_s:
        return None
    return StopReason(
        cause=StopCause.HUNG,
        text=f"its training printed no heartbeat for {format_duration(silent_s)} "
        f"(heartbeat_timeout_s {patience.heartbeat_timeout_s})",
    )


def _capped(snapshot: JobSnapshot, patience: Patience, now: float) -> StopReason | None:
    limit_s, billed_s = patience.max_billed_s, snapshot.billed_seconds_at(now)
    if limit_s is None or billed_s < limit_s:
        return None
    return StopReason(
        cause=StopCause.BUDGET,
        text=f"it is billed for {format_duration(billed_s)}, and its cost cap (max_cost_usd) allows "
        f"{format_duration(limit_s)} before the stop",
    )


def _window_ends(snapshot: JobSnapshot, patience: Patience, now: float) -> StopReason | None:
    """Return the reason to stop a job if it uses a training plan's instances and the plan's window is about to end."""
    if snapshot.last_wait is not None or not snapshot.transitions:  # It waits.
        return None
    waits = [each for each in snapshot.transitions if each.status in WAITING_STATUSES]
    began = max((each.end or each.start for each in waits), default=0.0)
    if not any(began <= stop <= now for stop in patience.plan_stops):
        return None
    return StopReason(
        cause=StopCause.WINDOW,
        text="the service ends the instances of its training plan in about 30 minutes; the next job resumes from its "
        "checkpoint",
    )


def _waited_s(snapshot: JobSnapshot, now: float) -> float | None:
    wait = snapshot.last_wait
    if wait is None or wait[1] is not None:
        return None
    return now - wait[0]
