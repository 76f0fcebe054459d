"""Estimate of a run's cost and time before it starts: low, expected and high."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from trainyard.catalog.hardware import hardware
from trainyard.catalog.instances import catalogue
from trainyard.cost.cost_cap import usd_per_s
from trainyard.planning.estimate.learning import (
    NEWEST,
    AmountRange,
    LearnedSeconds,
    learned_seconds,
)
from trainyard.planning.estimate.work import data_key, works_of
from trainyard.planning.evaluation_plan import CPU_FLOPS_PER_VCPU, INFERENCE_SHARE, reachable_flops
from trainyard.specs.run_conf import RunConf
from trainyard.task_ids import TaskId
from trainyard.units import format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.planning.estimate.measurement import JobMeasurement, RunMeasurement
    from trainyard.planning.estimate.work import JobWork
    from trainyard.specs.base_run_conf import BaseRunConf

PLANNED = (0.5, 3.0)
"""Low and high of an unmeasured figure, as multiples of the expected value."""
START_S = 120.0
"""Default seconds of a job outside of its loop: image, downloads, imports, the first step, upload of the model."""
WAIT_S = 180.0
"""Default seconds from a request to the start of its instances."""
BETWEEN_JOBS_S = 120.0
"""Default seconds of a run in which no job runs: Airflow's tasks."""
SHARDING_S = 300.0
"""Default seconds of a sharding job."""
SPOT_SAVED, MOST_SPOT_SAVED = 0.6, 0.7
"""Default share of the on-demand price that spot saves, expected and at best."""
INTERRUPTED_EACH_S = 3600.0
"""Default seconds between interruptions of spot, for confs without `mean_time_to_interruption_s`."""
REDONE_SHARE = 0.1
"""Largest share of the steps that an interrupted training repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEstimate:
    """Estimate of the jobs of one task.

    Attributes:
        usd: cost of all jobs; None if the price is unknown.
        seconds: seconds from the first request to the last end.
        basis: source of the figures, in words.
    """

    task_id: str
    usd: AmountRange | None
    seconds: AmountRange
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEstimate:
    """Estimate of a run.

    Attributes:
        usd: cost of all jobs; None if a price is unknown.
        seconds: wall time without waits for a person.
        jobs: estimates by task.
        num_runs: number of earlier runs that were read.
    """

    usd: AmountRange | None
    seconds: AmountRange
    jobs: tuple[JobEstimate, ...]
    num_runs: int

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON-safe data."""
        return {**asdict(self), "jobs": [asdict(each) for each in self.jobs]}

    def __str__(self) -> str:
        """Return the estimate in one line: cost, time, and the source of each task's figures."""
        money = "unknown price" if self.usd is None else estimate_text(asdict(self.usd))
        low, high = format_duration(self.seconds.low), format_duration(self.seconds.high)
        by = "; ".join(f"{each.task_id} from {each.basis}" for each in self.jobs)
        return f"{money}, {format_duration(self.seconds.expected)} ({low} to {high}); {by}"


def estimate_text(usd: Mapping[str, float]) -> str:
    """Return an estimate as text, `$1.20 ($0.90 to $2.10)`: the expected amount, then the low and the high one."""
    return f"{format_usd(usd['expected'])} ({format_usd(usd['low'])} to {format_usd(usd['high'])})"


def estimate_run(
    conf: BaseRunConf,
    *,
    history: Sequence[RunMeasurement] = (),
    ceiling_usd: float | None = None,
) -> RunEstimate:
    """Return the estimate of a run.

    - The expected value assumes the first capacity tier, and the durations of earlier jobs. Without earlier
      jobs, it uses the planner's figures, a default, or the job's time limit.
    - The low value assumes the cheapest tier and no interruptions.
    - The high value assumes the most expensive tier at the on-demand price. It also assumes one more restart of
      the training than expected, and that each restart repeats a tenth of the training's steps.

    The low, expected and high cost are each limited to the conf's cost cap and to `ceiling_usd`.

    Args:
        conf: the run's conf; its instance types are in the catalogue.
        history: earlier runs of the deployment, newest first.
        ceiling_usd: the most that the run can cost; None if unknown.
    """
    same_data = [each for each in history if each.data == data_key(conf) and each.test_units]
    test_units = same_data[0].test_units if same_data else None
    measured = [job for run in history for job in run.jobs]
    jobs = tuple(_job(conf, work, measured) for work in works_of(conf, test_units=test_units))
    bounds = [each for each in (conf.max_cost_usd, ceiling_usd) if each is not None]
    return RunEstimate(
        usd=_total(jobs, min(bounds, default=None)),
        seconds=sum((each.seconds for each in jobs), _between_jobs(history)),
        jobs=jobs,
        num_runs=len(history),
    )


def _total(jobs: Sequence[JobEstimate], bound: float | None) -> AmountRange | None:
    amounts = [each.usd for each in jobs if each.usd is not None]
    if len(amounts) < len(jobs):
        return None
    return sum(amounts, AmountRange(low=0.0, expected=0.0, high=0.0)).at_most(bound)


def _between_jobs(history: Sequence[RunMeasurement]) -> AmountRange:
    seen = [each.between_jobs_s for each in history[:NEWEST]]
    if not seen:
        return AmountRange.around(BETWEEN_JOBS_S, PLANNED)
    return AmountRange(low=min(seen), expected=median(seen), high=max(seen))


def _job(conf: BaseRunConf, work: JobWork, measured: Sequence[JobMeasurement]) -> JobEstimate:
    learned = _seconds(conf, work, measured)
    one = learned.total.at_most(work.max_run_s)
    is_restarted = work.task_id in {TaskId.TRAIN, TaskId.TUNE, TaskId.SMOKE_TEST}
    one = _with_restarts(conf, one, learned) if is_restarted else one
    price = catalogue().find(work.instance_type).price_usd_per_hour
    rate = usd_per_s(price, work.instance_count)
    usd = None if rate is None else one.times(rate * work.num_jobs)
    if is_restarted and all(each.training_plan for each in conf.rungs):
        usd = AmountRange(low=0.0, expected=0.0, high=0.0)
    elif usd is not None and is_restarted:
        usd = _of_the_tiers(conf, _billed(conf, work, usd, measured))
    rounds = math.ceil(work.num_jobs / work.num_parallel)
    wait = _wait(work, measured)
    return JobEstimate(
        task_id=work.task_id, usd=usd, seconds=(one + wait).times(rounds), basis=learned.basis
    )


def _seconds(
    conf: BaseRunConf, work: JobWork, measured: Sequence[JobMeasurement]
) -> LearnedSeconds:
    """Return the estimated seconds of a job, from similar earlier jobs if there are any.

    If a search or a smoke test has no similar earlier jobs, similar earlier trainings are used instead. A job
    without any of these is estimated by `_planned`.
    """
    learned = learned_seconds(work, measured)
    if learned is None and work.task_id in {TaskId.TUNE, TaskId.SMOKE_TEST}:
        learned = learned_seconds(replace(work, task_id=TaskId.TRAIN), measured)
    return learned or _planned(conf, work)


def _planned(conf: BaseRunConf, work: JobWork) -> LearnedSeconds:
    if work.operations and isinstance(conf, RunConf):
        seconds = START_S + work.operations / _operations_per_s(conf, work)
        basis = "the planner's figures"
    elif work.task_id == TaskId.SHARD:
        seconds, basis = SHARDING_S, "a default: no similar job was measured yet"
    else:
        limit = AmountRange(
            low=min(START_S, work.max_run_s), expected=work.max_run_s, high=work.max_run_s
        )
        return LearnedSeconds(
            total=limit, fixed_s=START_S, basis="its longest run: no similar job was measured yet"
        )
    return LearnedSeconds(total=AmountRange.around(seconds, PLANNED), fixed_s=START_S, basis=basis)


def _operations_per_s(conf: RunConf, work: JobWork) -> float:
    """Return the floating-point operations per second of all instances of a job.

    On accelerators an evaluation reaches INFERENCE_SHARE of a training's speed.
    """
    instance = catalogue().find(work.instance_type)
    one = reachable_flops(conf, instance) or CPU_FLOPS_PER_VCPU * instance.vcpus
    if instance.name not in hardware():
        return one * work.instance_count
    share = 1.0 if work.task_id == TaskId.EVALUATE else 1 / INFERENCE_SHARE
    return one * share * (instance.num_accelerators or 1) * work.instance_count


def _with_restarts(conf: BaseRunConf, one: AmountRange, learned: LearnedSeconds) -> AmountRange:
    """Return the seconds of a training with its restarts after spot interruptions.

    `one` is the seconds without restarts. The high value has the expected number of restarts,
    rounded up, and one more.
    """
    redone_s = REDONE_SHARE * max(0.0, one.expected - learned.fixed_s)
    each_s = getattr(conf, "mean_time_to_interruption_s", INTERRUPTED_EACH_S)
    expected = one.expected / each_s if conf.rungs[0].use_spot_instances else 0.0
    return AmountRange(
        low=one.low,
        expected=one.expected + expected * (learned.fixed_s + redone_s / 2),
        high=one.high + (math.ceil(expected) + 1) * (learned.fixed_s + redone_s),
    )


def _billed(
    conf: BaseRunConf, work: JobWork, usd: AmountRange, measured: Sequence[JobMeasurement]
) -> AmountRange:
    """Return a job's cost `usd` after the spot discount; without spot instances, return `usd` as it is.

    The high value has no discount, because spot's price is not guaranteed.
    """
    if not conf.rungs[0].use_spot_instances:
        return usd
    saved = [
        each.saved_fraction
        for each in measured
        if each.saved_fraction is not None and each.work.instance_type == work.instance_type
    ]
    return AmountRange(
        low=usd.low * (1 - max(saved, default=MOST_SPOT_SAVED)),
        expected=usd.expected * (1 - (median(saved) if saved else SPOT_SAVED)),
        high=usd.high,
    )


def _of_the_tiers(conf: BaseRunConf, usd: AmountRange) -> AmountRange | None:
    """Return the cost `usd` of a job on the first tier, converted to the prices of all capacity tiers.

    The low value is at the price of the cheapest tier, the expected value at that of the first tier, and the
    high value at that of the most expensive tier. A tier in a training plan costs nothing, because the plan is
    paid up front. The result is None if a tier's price is not known.
    """
    prices = [catalogue().find(each.instance_type).price_usd_per_hour for each in conf.rungs]
    counts = [each.instance_count or conf.instance_count for each in conf.rungs]
    known = [price * count for price, count in zip(prices, counts, strict=True) if price]
    if len(known) < len(prices):
        return None
    first = known[0]
    is_paid = [each.training_plan is None for each in conf.rungs]
    paid = [price if is_due else 0.0 for price, is_due in zip(known, is_paid, strict=True)]
    return AmountRange(
        low=usd.low * min(paid) / first,
        expected=usd.expected * paid[0] / first,
        high=usd.high * max(paid) / first,
    )


def _wait(work: JobWork, measured: Sequence[JobMeasurement]) -> AmountRange:
    seen = [
        each.wait_s
        for each in measured
        if each.wait_s is not None and each.work.instance_type == work.instance_type
    ]
    seen = seen[:NEWEST]
    if not seen:
        return AmountRange.around(WAIT_S, PLANNED)
    return AmountRange(low=min(seen), expected=median(seen), high=max(seen))
