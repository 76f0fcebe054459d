"""Fields of a training's spec that define its cluster: the tiers of the capacity ladder, or a single instance type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard.specs.base_run_conf import BaseRunConf


def training_cluster(conf: BaseRunConf) -> dict[str, Any]:
    """Return the fields of `TrainingJobSpec` that define the cluster and its limits.

    They set the instances, their volumes and warm pool, the longest run time, the longest waits for quota and
    for spot capacity, the heartbeat timeout, the restarts by the service, and the seconds reserved for a stop.
    """
    return {
        **_capacity(conf),
        "volume_size": conf.volume_size_gb,
        "max_run": conf.max_run_s,
        "heartbeat_timeout_s": conf.heartbeat_timeout_s,
        "max_quota_wait_s": conf.max_quota_wait_s,
        "max_retry_attempts": conf.max_retry_attempts or None,
        "stop_reserve_s": conf.stop_reserve_s,
        "keep_alive_period_in_seconds": conf.keep_alive_period_in_seconds,
    }


def _capacity(conf: BaseRunConf) -> dict[str, Any]:
    if conf.capacity_ladder:
        return {
            "capacity_ladder": conf.capacity_ladder,
            "instance_count": conf.instance_count,
            "max_wait": conf.max_wait_s if conf.may_use_spot else None,
        }
    is_spot = conf.use_spot_instances
    return {
        "instance_type": conf.instance_type,
        "instance_count": conf.instance_count,
        "use_spot_instances": is_spot,
        "max_wait": (conf.max_wait_s or 2 * conf.max_run_s) if is_spot else None,
    }
