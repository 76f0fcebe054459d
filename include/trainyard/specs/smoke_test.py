"""Smoke test of a run: a short training on few instances, which must complete before the training itself starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from trainyard.errors import SpecError
from trainyard.specs.run_conf import RunConf
from trainyard.specs.run_conf_tuning import with_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.specs.base_run_conf import BaseRunConf
    from trainyard.specs.capacity_rung import CapacityRung
    from trainyard.specs.script_conf import ScriptConf

Conf = TypeVar("Conf", "RunConf", "ScriptConf")


def smoke_conf(conf: Conf) -> Conf | None:
    """Return the conf of the run's smoke test; None without one.

    It is the run's conf with `smoke_hyperparameters`, `smoke_instance_count` and `smoke_max_run_s`, on the run's
    capacity tiers. A run on instance groups is tested with at most `smoke_instance_count` instances of each group. In a
    run of a shipped model the warm-up ends before the last step of the test.

    Raises:
        SpecError: the conf with these hyperparameters is invalid; its findings name the smoke test.
    """
    changed = conf.smoke_hyperparameters
    if changed is None:
        return None
    of_test: dict[str, Any] = {
        "instance_count": conf.smoke_instance_count,
        "capacity_ladder": _tiers(conf),
        "max_run_s": conf.smoke_max_run_s,
        "max_wait_s": None,
        "keep_alive_period_in_seconds": None,
        "smoke_hyperparameters": None,
    }
    try:
        if isinstance(conf, RunConf):
            return with_values(conf, {**_warm_up(conf, changed), **changed, **of_test})
        groups = tuple(
            replace(each, instance_count=min(each.instance_count, conf.smoke_instance_count))
            for each in conf.instance_groups
        )
        further = {**conf.hyperparameters, **changed}
        return replace(conf, **of_test, instance_groups=groups, hyperparameters=further)
    except SpecError as error:
        raise SpecError(
            [replace(each, where=f"{each.where} of the smoke test") for each in error.findings],
            subject="run conf",
        ) from error


def _tiers(conf: BaseRunConf) -> tuple[CapacityRung, ...]:
    """Return the tiers of the run's capacity ladder, with the smoke test's instance count; empty without a ladder.

    Tiers that then are equal are merged.
    """
    if not conf.capacity_ladder:
        return ()
    tiers = (replace(each, instance_count=conf.smoke_instance_count) for each in conf.rungs)
    return tuple(dict.fromkeys(tiers))


def _warm_up(conf: RunConf, changed: Mapping[str, Any]) -> dict[str, Any]:
    steps = changed.get("max_steps")
    if not isinstance(steps, int):
        return {}
    return {"warmup_steps": max(0, min(conf.num_warmup_steps, steps - 1))}
