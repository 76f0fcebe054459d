"""Rules for a run's capacity ladder and instance groups.

The first tier of a ladder, or an instance group, replaces fields of the conf. If the conf sets such a field
to another value, that is a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.errors import Finding
from trainyard.specs.capacity_rung import MOST_RUNGS, plan_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainyard.specs.base_run_conf import BaseRunConf
    from trainyard.specs.capacity_rung import CapacityRung
    from trainyard.specs.run_conf import RunConf
    from trainyard.specs.training_job import InstanceGroup

_REPLACED = ("instance_type", "instance_count")


def contradictions(conf: BaseRunConf) -> Iterator[Finding]:
    """Yield a finding for each field of the conf that is set to another value than the first capacity tier's.

    The tier's value replaces the field, so the conf's value would have no effect. A field with its default
    value gives no finding.
    """
    first = conf.capacity_ladder[0]
    yield from _replaced(conf, first, by="the first tier of capacity_ladder", there="first tier")
    if conf.use_spot_instances and not first.use_spot_instances:
        yield Finding(
            where="use_spot_instances",
            what="differs from the first tier of capacity_ladder, which replaces it",
            got="true; the first tier has false",
            next_step="remove use_spot_instances, or set the same value in the first tier",
        )


def group_contradictions(conf: BaseRunConf, group: InstanceGroup) -> Iterator[Finding]:
    """Yield a finding for each field of the conf that is set to another value than the instance group's.

    The group's value replaces the field, so the conf's value would have no effect.
    """
    by = f"the group {group.instance_group_name!r} of instance_groups"
    yield from _replaced(conf, group, by=by, there="group")


def _replaced(
    conf: BaseRunConf, other: CapacityRung | InstanceGroup, *, by: str, there: str
) -> Iterator[Finding]:
    declared = type(conf).__dataclass_fields__
    for name in _REPLACED:
        own, value = getattr(conf, name), getattr(other, name)
        if value is not None and own not in {declared[name].default, value}:
            yield Finding(
                where=name,
                what=f"differs from {by}, which replaces it",
                got=f"{own}; the {there} has {value}",
                next_step=f"remove {name}, or set the same value in the {there}",
            )


def even_rung_findings(conf: RunConf) -> Iterator[Finding]:
    """Yield an error for each capacity tier but the first, if its ranks cannot divide the global batch evenly."""
    for index, rung in enumerate(conf.capacity_ladder[1:], 1):
        ranks = (rung.instance_count or conf.instance_count) * conf.ranks_on(rung.instance_type)
        readers = conf.num_readers_of(ranks)
        at_once = conf.micro_batch_size * readers
        if at_once > 0 and conf.global_batch_size > 0 and conf.global_batch_size % at_once:
            yield Finding(
                where=f"capacity_ladder[{index}].instance_count",
                what="gives a number of ranks that does not fit global_batch_size",
                got=f"global_batch_size {conf.global_batch_size} with micro_batch_size {conf.micro_batch_size} and "
                f"{readers} data-parallel rank{'' if readers == 1 else 's'}",
                allowed="a global batch that is a multiple of micro_batch_size x data-parallel ranks on every tier",
            )


def rung_findings(ladder: Iterable[CapacityRung]) -> Iterator[Finding]:
    """Yield the faults of a ladder that do not depend on the job: too many rungs, or a repeated rung."""
    rungs = list(ladder)
    if len(rungs) > MOST_RUNGS:
        yield Finding(
            where="capacity_ladder",
            what="has too many tiers",
            got=str(len(rungs)),
            allowed=f"at most {MOST_RUNGS}",
        )
    seen: dict[tuple[str, int | None, bool, str | None], int] = {}
    for index, each in enumerate(rungs):
        plan = each.training_plan and plan_name(each.training_plan)
        kind = (each.instance_type, each.instance_count, each.use_spot_instances, plan)
        first = seen.setdefault(kind, index)
        if first != index:
            yield Finding(
                where=f"capacity_ladder[{index}]",
                what=f"is the same capacity as capacity_ladder[{first}]",
                got=str(each),
                next_step="remove one of them, and add its max_wait_s and max_cost_usd to those of the other",
            )
