"""Cost ceiling of a run: the most that all its jobs can cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainyard.cost.job_cost import CostEstimate, cluster_ceiling
from trainyard.planning.cap_plan import RunCost, cap_plan
from trainyard.planning.evaluation_plan import Place, plan_evaluation, processing_run_s
from trainyard.planning.search_cost import search_cost
from trainyard.specs.smoke_test import smoke_conf
from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainyard.planning.cap_plan import CapPlan
    from trainyard.planning.evaluation_plan import EvaluationPlan
    from trainyard.planning.search_cost import SearchCost
    from trainyard.specs.base_run_conf import BaseRunConf
    from trainyard.specs.capacity_rung import CapacityRung
    from trainyard.specs.run_conf import RunConf


def evaluation_fallback(
    conf: RunConf, *, trained: RunConf, trained_on: str | None, job_attempts: int
) -> EvaluationPlan | None:
    """Return the plan of the processing job that replaces an evaluation in the training's last step.

    The job is needed if the training ended before that step. Return None if no instance type can run the job,
    or if the run with this job could cost more than its budget.

    Args:
        conf: the run's own conf. The run's cost and budget are derived from it.
        trained: the conf with the hyperparameters that the training used. It determines the model to evaluate.
        trained_on: instance type of the training.
        job_attempts: number of times that each job may be started.
    """
    place = Place.PROCESSING.value
    plan = plan_evaluation(replace(trained, evaluation_place=place), trained_on=trained_on)
    if plan.unfit:
        return None
    budget, other = conf.budget_usd, replace(conf, evaluation_place=place)
    if budget is not None and run_cost(other, job_attempts=job_attempts).known_usd > budget:
        return None
    return plan


def run_cost(conf: RunConf, *, job_attempts: int = 1) -> RunCost:
    """Return the most that all jobs of a run can cost: sharding, smoke test, search, training and evaluation.

    With a capacity ladder, each attempt of the training counts as one on the most expensive tier.

    Worked example: train on 2 x ml.m5.large and evaluate on one, at 0.115 USD/h for 3600 s each, with
    4 attempts: 4 x (0.23 + 0.115) = 1.38 USD.

    Args:
        conf: the run's conf; its instance types are in the catalogue.
        job_attempts: number of times that each job may be started.
    """
    return total_cost(
        _estimates(conf),
        job_attempts=job_attempts,
        search=search_cost(conf, attempts=job_attempts),
    )


def total_cost(
    estimates: Mapping[str, CostEstimate], *, job_attempts: int, search: SearchCost | None = None
) -> RunCost:
    """Return the most that jobs can cost together.

    Args:
        estimates: cost of one attempt of each job, by task id.
        job_attempts: number of times that each job may be started.
        search: cost of the search with all its attempts; None without a search.
    """
    amounts = [each.ceiling_usd for each in estimates.values()]
    known = sum(each for each in amounts if each is not None)
    once = None if None in amounts else known
    searched, searched_once = (search.ceiling_usd, search.once_usd) if search else (0.0, 0.0)
    times = f"each job at most {job_attempts} times; " if job_attempts > 1 else ""
    note = times + "; ".join(f"{name}: {each.note}" for name, each in estimates.items())
    return RunCost(
        ceiling_usd=None if once is None or searched is None else once * job_attempts + searched,
        once_usd=None if once is None or searched_once is None else once + searched_once,
        known_usd=known * job_attempts + (searched or 0.0),
        search_usd=searched,
        note=note if search is None else f"{note}; search: {search.note}",
    )


def training_budget_usd(conf: RunConf, *, searched_usd: float | None = None) -> float | None:
    """Return the most in USD that all training attempts together may cost; None if the run has no budget.

    This is the run's budget minus the cost of the search and of one attempt of each other job. It is at least
    0.01 USD. If the other jobs use up the budget, the cost check before the first attempt rejects the training.

    Args:
        conf: the run's conf.
        searched_usd: actual cost of the search; None = unknown, so its ceiling counts.
    """
    if conf.budget_usd is None:
        return None
    estimates, search = _estimates(conf), search_cost(conf)
    most = search.ceiling_usd if search else None
    spent = (most or 0.0) if searched_usd is None else searched_usd
    return left_for_training(conf.budget_usd - spent, estimates)


def run_cap(conf: RunConf) -> CapPlan | None:
    """Return the run's cost cap with the part of each job; None if the run has no cap."""
    if conf.max_cost_usd is None:
        return None
    search = search_cost(conf)
    searched = search.ceiling_usd if search else 0.0
    return cap_plan(conf, _capped_estimates(conf), search_usd=searched or 0.0)


def _capped_estimates(conf: RunConf) -> Mapping[str, CostEstimate]:
    """Return the cost estimate of one attempt per job, by task id, for a run with a cost cap.

    If the cap stops the training early, an evaluation in the training's last step does not run. A processing
    job then evaluates the model. The estimates include that job if an instance type can run it.
    """
    if conf.evaluation_place == Place.NONE:
        return _estimates(conf)
    other = replace(conf, evaluation_place=Place.PROCESSING.value)
    return _estimates(conf if plan_evaluation(other).unfit else other)


def left_for_training(budget_usd: float, estimates: Mapping[str, CostEstimate]) -> float:
    """Return the part of the budget in USD that is left for the training, at least 0.01.

    It is the budget minus the cost of the other jobs, each with one attempt at its highest cost. A job whose
    cost is unknown is not subtracted.
    """
    others = (each.ceiling_usd for name, each in estimates.items() if name != TaskId.TRAIN)
    return max(0.01, budget_usd - sum(each for each in others if each is not None))


def training_estimate(conf: BaseRunConf) -> CostEstimate:
    """Return the estimate of one attempt of the training, on its most expensive capacity tier."""
    return _dearest(rung_estimate(conf, rung) for rung in conf.rungs)


def rung_estimate(conf: BaseRunConf, rung: CapacityRung) -> CostEstimate:
    """Return the most that one training attempt can cost on one capacity tier (`rung`).

    Raises a SpecError for an instance type that is not in the catalogue.
    """
    return cluster_ceiling(
        conf.instances_on(rung),
        max_run_s=conf.max_run_s,
        use_spot_instances=rung.use_spot_instances,
        training_plan=rung.training_plan,
    )


def _estimates(conf: RunConf) -> Mapping[str, CostEstimate]:
    """Return the cost estimate of one attempt per job, by task id. Each job counts with its longest allowed time."""
    estimates: dict[str, CostEstimate] = {TaskId.TRAIN: training_estimate(conf)}
    if test := smoke_conf(conf):
        estimates[TaskId.SMOKE_TEST] = training_estimate(test)
    evaluating = [plan_evaluation(conf, trained_on=each.instance_type) for each in conf.rungs]
    if evaluating[0].place is Place.PROCESSING:
        estimates[TaskId.EVALUATE] = _dearest(
            cluster_ceiling({each.instance_type: 1}, max_run_s=each.max_run_s)
            for each in evaluating
        )
    if conf.shard_instance_count:
        estimates[TaskId.SHARD] = cluster_ceiling(
            {conf.shard_instance_type: conf.shard_instance_count}, max_run_s=processing_run_s(conf)
        )
    return estimates


def _dearest(estimates: Iterable[CostEstimate]) -> CostEstimate:
    """Return the most expensive estimate. An unknown price counts as the most expensive."""
    return max(estimates, key=lambda each: (each.ceiling_usd is None, each.ceiling_usd or 0.0))
