"""Warm pools of training jobs: their status over time, and their reuse by later jobs.

The engine does not keep instances: a new instance starts so fast that reuse would not save time. A job with
KeepAlivePeriodInSeconds shows the life cycle that its pool would have. Source: "SageMaker AI Managed Warm Pools",
SageMaker developer guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.plans.use import plan_arn_of
from sagemaker_engine.state.jobs import TERMINAL_STATUSES, JobQuery, JobRow, ResourceKind
from sagemaker_engine.wire.errors import ValidationError

if TYPE_CHECKING:
    from sagemaker_engine.state.store import JobStore

_REUSE = "WarmPoolReuse"
_RELEASED_AT, _HELD_S = "WarmPoolReleasedAt", "WarmPoolHeldForSeconds"
_OF_RESOURCES = ("InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId")
_OF_NETWORK = ("EnableInterContainerTrafficEncryption", "EnableNetworkIsolation")


def warm_pool_status(job: JobRow, *, now: float) -> dict[str, Any] | None:
    """Return WarmPoolStatus at `now` (epoch seconds), or None for a job without a pool."""
    period = job.request.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds")
    if period is None:
        return None
    if not job.is_terminal:
        return {"Status": "InUse"}
    if (reuse := job.state.get(_REUSE)) is not None:
        retained = int(reuse["At"] - job.state["TrainingEndTime"])
        return {
            "Status": "Reused",
            "ResourceRetainedBillableTimeInSeconds": max(0, retained),
            "ReusedByJob": reuse["Job"],
        }
    ended_at = job.state.get("TrainingEndTime")
    if ended_at is None:  # The job ended before it had instances.
        return {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 0}
    released_at = job.state.get(_RELEASED_AT)
    retained = int((now if released_at is None else released_at) - ended_at)
    is_held = released_at is None and retained < period
    return {
        "Status": "Available" if is_held else "Terminated",
        "ResourceRetainedBillableTimeInSeconds": retained if is_held else _billed_s(retained, job),
    }


def _billed_s(retained_s: int, job: JobRow) -> int:
    """Return the billed seconds of a pool that ended.

    They are `retained_s`, the seconds for which the pool was kept, but at most the keep-alive period in force at
    its end.
    """
    held_s = job.state.get(_HELD_S, job.request["ResourceConfig"]["KeepAlivePeriodInSeconds"])
    return min(retained_s, int(held_s))


def change_retention(store: JobStore, job: JobRow, period_s: int, *, now: float) -> None:
    """Check that a warm pool's keep-alive period can change to `period_s` seconds.

    If the pool has already been kept for `period_s` seconds, this function releases it. The seconds until
    `now` remain billed. The caller stores the new period.

    Raises:
        ValidationError: The job has no pool, or its pool is not available.
    """
    pool = warm_pool_status(job, now=now)
    if pool is None:
        raise ValidationError(
            "KeepAlivePeriodInSeconds can only be updated for a training job that was created "
            "with a warm pool."
        )
    if pool["Status"] != "Available":
        raise ValidationError(
            "KeepAlivePeriodInSeconds can only be updated while the warm pool is Available; it is "
            f"{pool['Status']}."
        )
    if pool["ResourceRetainedBillableTimeInSeconds"] < period_s:
        return
    held_s = job.request["ResourceConfig"]["KeepAlivePeriodInSeconds"]

    def release(state: dict[str, Any]) -> None:
        state[_RELEASED_AT], state[_HELD_S] = now, held_s

    store.update_state(ResourceKind.TRAINING, job.name, release)


def take_pool(store: JobStore, name: str, request: dict[str, Any], *, now: float) -> str | None:
    """Assign a matching available pool to the new job `name`; return the name of the job that retained it, or None.

    Pools of older jobs are taken first. Concurrent calls never get the same pool.
    """
    wanted = _matched(request)
    has_no_pools = request.get("EnableManagedSpotTraining") or plan_arn_of(request) is not None
    if has_no_pools or wanted["InstanceType"] is None:
        return None

    def is_free(job: JobRow) -> bool:
        return (warm_pool_status(job, now=now) or {}).get("Status") == "Available"

    def take(state: dict[str, Any]) -> None:
        state[_REUSE] = {"Job": name, "At": now}

    for job in store.list(ResourceKind.TRAINING, JobQuery(statuses=TERMINAL_STATUSES)):
        if job.name == name or not is_free(job) or _matched(job.request) != wanted:
            continue
        taken = store.update_state(ResourceKind.TRAINING, job.name, take, when=is_free)
        if taken.state.get(_REUSE, {}).get("Job") == name:
            return job.name
    return None


def _matched(request: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that two jobs must share to reuse a pool, as listed in the developer guide."""
    resources, network = request.get("ResourceConfig", {}), request.get("VpcConfig", {})
    return {
        "RoleArn": request.get("RoleArn"),
        **{name: resources.get(name) for name in _OF_RESOURCES},
        **{name: sorted(network.get(name, ())) for name in ("Subnets", "SecurityGroupIds")},
        **{name: bool(request.get(name)) for name in _OF_NETWORK},
    }
