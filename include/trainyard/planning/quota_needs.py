"""Service quotas that a run's jobs need, by their names in Service Quotas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.planning.evaluation_plan import Place, plan_evaluation, way_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.specs.base_run_conf import BaseRunConf
    from trainyard.specs.run_conf import RunConf

EVALUATION = "evaluation_instance_type"
"""`QuotaNeed.where` of the evaluation's instance type."""
LONGEST_RUN = "Longest run time for a training job"
SERVICE_CODE = "sagemaker"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaNeed:
    """Amount of one service quota that one job needs.

    Attributes:
        where: param that causes the need.
        name: QuotaName of the quota.
        amount: number of instances; for the quota on the run time of a training job, seconds (`max_run_s`).
        is_alternative: whether another rung of the capacity ladder can be used instead.
        next_step: alternative to a larger quota; None = fewer instances or another type.
    """

    where: str
    name: str
    amount: int
    is_alternative: bool = False
    next_step: str | None = None


def quota_needs(conf: RunConf) -> Iterator[QuotaNeed]:
    """Yield the needs of training, sharding job and evaluation. They are not added up: the jobs run in sequence."""
    yield from training_needs(conf)
    if conf.shard_instance_count:
        yield processing_need(
            "shard_instance_type", conf.shard_instance_type, amount=conf.shard_instance_count
        )
    yield from _evaluation(conf)


def training_needs(conf: BaseRunConf) -> Iterator[QuotaNeed]:
    """Yield the quotas that the training needs.

    One quota is for the longest run time, `max_run_s`. The others are for instances:

    - With a capacity ladder: the instances of each rung. A rung with a training plan needs no quota.
    - Without a ladder: the instances of `instance_type`, or of all instance groups.
    """
    yield QuotaNeed(where="max_run_s", name=LONGEST_RUN, amount=conf.max_run_s)
    for index, rung in enumerate(conf.capacity_ladder):
        if rung.training_plan is not None:  # reserved instances need no quota
            continue
        yield QuotaNeed(
            where=f"capacity_ladder[{index}]",
            name=_training(rung.instance_type, is_spot=rung.use_spot_instances),
            amount=rung.instance_count or conf.instance_count,
            is_alternative=True,
        )
    where = "instance_groups" if conf.ranks_group else "instance_type"
    own = {} if conf.capacity_ladder else conf.instances_on(conf.rungs[0])
    for name, amount in own.items():
        quota = _training(name, is_spot=conf.use_spot_instances)
        yield QuotaNeed(where=where, name=quota, amount=amount)


def processing_need(
    where: str, instance_type: str, *, amount: int = 1, next_step: str | None = None
) -> QuotaNeed:
    """Return the need of a processing job: `amount` instances of the type."""
    name = f"{instance_type} for processing job usage"
    return QuotaNeed(where=where, name=name, amount=amount, next_step=next_step)


def _evaluation(conf: RunConf) -> Iterator[QuotaNeed]:
    """Yield the quota need of the evaluation's processing job, for each instance type that the job may get.

    Yield nothing if the training evaluates the model in its last step.
    """
    plans = [plan_evaluation(conf, trained_on=each.instance_type) for each in conf.rungs]
    for name in dict.fromkeys(p.instance_type for p in plans if p.place is Place.PROCESSING):
        yield processing_need(EVALUATION, name, next_step=way_out(conf))


def _training(instance_type: str, *, is_spot: bool) -> str:
    return f"{instance_type} for {'spot ' if is_spot else ''}training job usage"
