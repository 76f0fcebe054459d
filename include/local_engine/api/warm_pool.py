"""The warm pool of a training job, as far as its status can be told from times.

The engine keeps no instances; a job with KeepAlivePeriodInSeconds shows the life cycle that a pool
would have. Source: "Train using SageMaker-managed warm pools", SageMaker developer guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from include.local_engine.store import JobRow


def warm_pool_status(job: JobRow, *, now: float) -> dict[str, Any] | None:
    """Return WarmPoolStatus at epoch second `now`, None for a job without a pool."""
    period = job.request.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds")
    if period is None:
        return None
    if not job.is_terminal:
        return {"Status": "InUse"}
    ended_at = job.state.get("TrainingEndTime")
    if ended_at is None:  # It ended before it had instances.
        return {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 0}
    retained = min(int(now - ended_at), period)
    status = "Available" if retained < period else "Terminated"
    return {"Status": status, "ResourceRetainedBillableTimeInSeconds": retained}
