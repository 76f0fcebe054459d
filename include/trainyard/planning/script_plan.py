"""Plan of one run of a user's script, made before any job starts: instances, ranks, cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from trainyard.catalog.aws_images import aws_images
from trainyard.catalog.instances import catalogue, largest_volume_gb, volume_findings
from trainyard.cost.job_cost import CostEstimate, cluster_ceiling
from trainyard.errors import Finding, Severity, SpecError
from trainyard.planning.cap_plan import cap_plan, keep_cap
from trainyard.planning.evaluation_plan import LONGEST_DERIVED_S, SMALL_TYPE
from trainyard.planning.ladder_plan import ladder_plan_findings
from trainyard.planning.quota_needs import EVALUATION, processing_need, training_needs
from trainyard.planning.run_cost import left_for_training, total_cost, training_estimate
from trainyard.planning.run_plan import (
    find_instance,
    instance_findings,
    keep_budget,
    price_warnings,
    processing_type_findings,
)
from trainyard.specs.limits import LEAST_RUN_S, MAX_PROCESSING_RUN_S
from trainyard.specs.script_conf import ScriptConf
from trainyard.specs.smoke_test import smoke_conf
from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.planning.cap_plan import CapPlan, RunCost
    from trainyard.planning.quota_needs import QuotaNeed

GPU_TYPE = "ml.g5.12xlarge"
"""Type in place of SMALL_TYPE for frameworks without CPU images; its GPUs hold 40 B parameters in bf16 together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptEvaluation:
    """Processing job that evaluates the model of a user's script.

    Attributes:
        reason: explanation of the choice of `instance_type`, as text for the user.
    """

    instance_type: str
    max_run_s: int
    volume_size_gb: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptPlan:
    """Plan of a valid conf, and its cost.

    Attributes:
        ceiling_usd: the most that all attempts of all jobs can cost; None if a price is unknown.
        once_usd: the same with one attempt per job.
        cost_note: calculation of the ceiling, in words.
        evaluation: job that evaluates the model; None without one.
        warnings: findings that do not stop the run.
    """

    world_size: int
    ceiling_usd: float | None
    once_usd: float | None
    cost_note: str
    evaluation: ScriptEvaluation | None
    warnings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-safe data."""
        return {**asdict(self), "warnings": [str(each) for each in self.warnings]}


def plan_script(params: Mapping[str, Any], *, job_attempts: int = 1) -> ScriptPlan:
    """Return the plan for a run's params. Each job may be started `job_attempts` times.

    Raises:
        SpecError: the conf or its instance types are invalid; the findings name all errors.
        BudgetExceededError: the conf is valid, but the run could cost more than its budget_usd.
    """
    conf = ScriptConf.from_mapping(params)
    findings = list(_instance_findings(conf))
    if errors := [each for each in findings if each.severity is Severity.ERROR]:
        raise SpecError(errors, subject="run conf")
    cost = total_cost(_estimates(conf), job_attempts=job_attempts)
    cost, capped = keep_cap(conf, script_cap(conf), cost)
    keep_budget(conf.budget_usd, cost, cheaper=partial(_cheaper, conf, cost))
    return ScriptPlan(
        world_size=conf.world_size,
        ceiling_usd=cost.ceiling_usd,
        once_usd=cost.once_usd,
        cost_note=cost.note,
        evaluation=script_evaluation(conf),
        warnings=(*findings, *capped, *price_warnings(conf, cost)),
    )


def script_evaluation(conf: ScriptConf) -> ScriptEvaluation | None:
    """Return the job that evaluates the model; None if the conf has no `evaluation_entry_point`.

    The first case that applies determines the job's instance type:

    1. If `evaluation_instance_type` is set, it is this type.
    2. If processing jobs support the training's type, it is the training's type. With a capacity ladder, this
       is the type of the first rung, so that the job does not depend on the rung on which the training ran.
    3. Otherwise it is SMALL_TYPE if AWS has CPU images of the framework, or GPU_TYPE if not.
    """
    if conf.evaluation_entry_point is None:
        return None
    own, trained_on = conf.evaluation_instance_type, catalogue().types.get(conf.instance_type)
    if own:
        name, reason = own, "the conf names it"
    elif trained_on is not None and trained_on.is_for_processing:
        name, reason = conf.instance_type, "the training's type"
    else:
        name = SMALL_TYPE if _has_cpu_image(conf) else GPU_TYPE
        reason = f"processing jobs cannot have {conf.instance_type}"
    longest_s = min(conf.max_run_s, LONGEST_DERIVED_S, MAX_PROCESSING_RUN_S)
    return ScriptEvaluation(
        instance_type=name,
        max_run_s=conf.evaluation_max_run_s or longest_s,
        volume_size_gb=conf.evaluation_volume_size_gb
        or largest_volume_gb(conf.volume_size_gb, name),
        reason=f"{name}: {reason}, by {conf.evaluation_entry_point}",
    )


def script_quota_needs(conf: ScriptConf) -> Iterator[QuotaNeed]:
    """Yield the quotas that the training and the evaluation need.

    They are not added up, because the two jobs run in sequence.
    """
    yield from training_needs(conf)
    if evaluation := script_evaluation(conf):
        yield processing_need(
            EVALUATION,
            evaluation.instance_type,
            next_step=f"name another {EVALUATION}"
            + (f", such as {SMALL_TYPE}" if _has_cpu_image(conf) else ""),
        )


def _has_cpu_image(conf: ScriptConf) -> bool:
    """Return whether AWS has images of the framework for CPU types."""
    return any("cpu" in each for each in aws_images().images[conf.framework].values())


def script_training_budget_usd(conf: ScriptConf) -> float | None:
    """Return the amount of the run's budget that is left for the training; None without a budget.

    The amount is the budget minus the highest cost of one attempt of each other job, but at least 0.01 USD.
    """
    if conf.budget_usd is None:
        return None
    return left_for_training(conf.budget_usd, _estimates(conf))


def script_cap(conf: ScriptConf) -> CapPlan | None:
    """Return the run's cost cap with the part of each job; None if the run has no cap."""
    return cap_plan(conf, _estimates(conf))


def _instance_findings(conf: ScriptConf) -> Iterator[Finding]:
    for index, group in enumerate(conf.instance_groups):
        _, unknown = find_instance(
            {"instance_type": group.instance_type},
            where=f"instance_groups[{index}].instance_type",
        )
        yield from unknown
    instance, unknown = find_instance({"instance_type": conf.instance_type})
    yield from () if conf.instance_groups else unknown
    if instance:
        yield from instance_findings(conf, instance)
    yield from ladder_plan_findings(conf, instance_findings)
    if conf.evaluation_instance_type:
        yield from processing_type_findings(EVALUATION, conf.evaluation_instance_type)
    evaluation = script_evaluation(conf)
    if evaluation and conf.evaluation_volume_size_gb:
        yield from volume_findings(
            evaluation.volume_size_gb, evaluation.instance_type, where="evaluation_volume_size_gb"
        )


def _estimates(conf: ScriptConf) -> Mapping[str, CostEstimate]:
    estimates: dict[str, CostEstimate] = {TaskId.TRAIN: training_estimate(conf)}
    if test := smoke_conf(conf):
        estimates[TaskId.SMOKE_TEST] = training_estimate(test)
    if evaluation := script_evaluation(conf):
        estimates[TaskId.EVALUATE] = cluster_ceiling(
            {evaluation.instance_type: 1}, max_run_s=evaluation.max_run_s
        )
    return estimates


def _cheaper(conf: ScriptConf, cost: RunCost) -> str:
    """Return the next step that makes a run fit into its budget: a lower max_run_s, or other instances."""
    longest_s = int(conf.max_run_s * (conf.budget_usd or 0.0) / cost.known_usd)
    return (
        "use fewer or cheaper instances"
        if longest_s < LEAST_RUN_S
        else f"lower max_run_s to {longest_s}"
    )
