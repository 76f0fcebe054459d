"""Data about a run's training, for other tasks: the rules that watch it, and its part of a model's lineage."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trainyard.rules.rule import RuleAction
from trainyard.rules.watch_plan import WatchPlan, with_idle_rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.specs.base_run_conf import BaseRunConf
    from trainyard_airflow.tasks.shared.run_paths import RunPaths


def watch_plan(
    conf: BaseRunConf, *, on_stop: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """Return the plan by which rules watch the training, in the format of `WatchPlan.to_dict`.

    Return None if the conf requires no watch. `on_stop` is the reaction to a stop by a rule, if any
    (`WatchPlan.on_stop`).
    """
    if not conf.watch_rules:
        return None
    return WatchPlan(
        rules=with_idle_rule(conf.rules, conf.stop_if_idle_minutes),
        conf=asdict(conf),
        on_error=RuleAction(conf.on_rule_error),
        on_stop=on_stop or {},
        poll_interval_s=conf.rules_poll_interval_s,
    ).to_dict()


def training_lineage(training: Mapping[str, Any], *, paths: RunPaths) -> dict[str, Any]:
    """Return the part of a model's lineage that follows from the training.

    It has `ended_by` and `stopped_at_step` if the training was stopped to limit its cost.

    Args:
        training: the result of the training task.
        paths: addresses of its run.
    """
    stop = training.get("cap_stop") or training.get("idle_stop")
    ended = {"ended_by": training["ended_by"], "stopped_at_step": stop["step"]} if stop else {}
    return {
        "dag_id": paths.dag_id,
        "run_id": paths.run_id,
        "code_sha256": (training.get("code") or {}).get("sha256"),
        "training_job": training["job_name"],
        "training_image": training["image_uri"],
        "training_image_digest": training.get("image_digest"),
        "training_attempts": training["attempt"],
        **ended,
    }
