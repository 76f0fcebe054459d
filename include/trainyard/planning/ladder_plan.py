"""Checks of a capacity ladder, a job's list of fallback capacities.

Each rung of the ladder is checked: its type, ranks, memory and cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from trainyard.catalog.instances import catalogue
from trainyard.errors import Finding, SpecError
from trainyard.planning.run_cost import rung_estimate
from trainyard.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trainyard.catalog.instances import InstanceType
    from trainyard.specs.base_run_conf import BaseRunConf
    from trainyard.specs.capacity_rung import CapacityRung

C = TypeVar("C", bound="BaseRunConf")


def ladder_plan_findings(
    conf: C, cluster_rules: Callable[[C, InstanceType], Iterable[Finding]]
) -> Iterator[Finding]:
    """Yield the findings about each rung of the capacity ladder, as if it were the only cluster.

    Args:
        conf: the run's conf. Its own cluster is the first rung, which the caller has already checked.
        cluster_rules: function that yields the findings about a conf on an instance type.
    """
    for index, rung in enumerate(conf.rungs if conf.capacity_ladder else ()):
        where = f"capacity_ladder[{index}]"
        try:
            instance = catalogue().find(rung.instance_type, where=f"{where}.instance_type")
        except SpecError as error:
            yield from error.findings if index else ()
            continue
        yield from _money(conf, rung, where)
        if index:
            on_rung = _standing_on(conf, rung)
            yield from (each.at(where) for each in cluster_rules(on_rung, instance))


def _standing_on(conf: C, rung: CapacityRung) -> C:
    """Return the conf without its capacity ladder, with this rung as its only cluster."""
    return replace(
        conf,
        capacity_ladder=(),
        instance_type=rung.instance_type,
        instance_count=rung.instance_count or conf.instance_count,
        use_spot_instances=rung.use_spot_instances,
        max_wait_s=None,
    )


def _money(conf: BaseRunConf, rung: CapacityRung, where: str) -> Iterator[Finding]:
    estimate = rung_estimate(conf, rung)
    if rung.max_cost_usd is None or estimate.ceiling_usd is None:
        return
    if estimate.ceiling_usd > rung.max_cost_usd:
        yield Finding(
            where=f"{where}.max_cost_usd",
            what="is less than one attempt can cost, so the tier would never be used",
            got=f"{format_usd(rung.max_cost_usd)} for an attempt of up to {format_usd(estimate.ceiling_usd)}: "
            f"{estimate.note}",
            next_step="raise max_cost_usd, lower max_run_s, or remove the tier",
        )
