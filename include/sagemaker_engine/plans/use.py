"""Use of training plans by training jobs: the plans that a request names, and checks of the request against them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.plans.plan import TRAINING
from sagemaker_engine.plans.tables import MissingPlanError
from sagemaker_engine.wire.errors import ResourceNotFoundError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sagemaker_engine.plans.tables import PlanTables, StoredPlan


def plan_arn_of(request: Mapping[str, Any]) -> str | None:
    """Return the ARN of the plan in which a job runs, or None if the job has no plan.

    If the request has InstancePreferences, the job uses the first entry. If that entry names several plans,
    the job runs in the first of them.
    """
    resources = request.get("ResourceConfig") or {}
    preferred: Mapping[str, Any] = next(iter(resources.get("InstancePreferences") or ()), {})
    arns = [resources.get("TrainingPlanArn"), *preferred.get("TrainingPlanArns", ())]
    return next(filter(None, arns), None)


def rule_problems(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors that a request with a training plan has regardless of the plan.

    The engine rejects spot capacity and warm pools for jobs in a plan, because AWS documents neither combination.
    """
    if plan_arn_of(request) is None:
        return
    resources = request["ResourceConfig"]
    if request.get("EnableManagedSpotTraining"):
        yield "TrainingPlanArn cannot be used together with EnableManagedSpotTraining."
    if resources.get("KeepAlivePeriodInSeconds"):
        yield "TrainingPlanArn cannot be used together with KeepAlivePeriodInSeconds."
    preferences = resources.get("InstancePreferences") or ()
    if "TrainingPlanArn" in resources and any(each.get("TrainingPlanArns") for each in preferences):
        yield "TrainingPlanArns of InstancePreferences and TrainingPlanArn of ResourceConfig are mutually exclusive."


def check_plans(tables: PlanTables, request: Mapping[str, Any], *, now: float) -> None:
    """Check a job against the plans that its request names; `now` is the time on the plans' clock.

    Raises:
        ResourceNotFoundError: A plan does not exist.
        ValidationError: A plan has expired, is not for training jobs, has another instance type or too few instances.
    """
    for arn, clusters in _plans_of(request):
        try:
            plan = tables.get(arn)
        except MissingPlanError as error:
            raise ResourceNotFoundError(f"Could not find training plan {arn}.") from error
        for problem in _problems(plan, clusters, now=now):
            raise ValidationError(problem)


def _plans_of(request: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield the ARN of each training plan that the request names, with a list of (instance type, count) pairs.

    The pairs are the instances that the job uses in that plan.
    """
    resources = request.get("ResourceConfig") or {}
    count = resources.get("InstanceCount", 1)
    for each in resources.get("InstancePreferences") or ():
        for arn in each.get("TrainingPlanArns", ()):
            yield arn, [(each["InstanceType"], each.get("InstanceCount", count))]
    if "TrainingPlanArn" in resources:
        groups = resources.get("InstanceGroups") or [resources]
        yield (
            resources["TrainingPlanArn"],
            [(each["InstanceType"], each.get("InstanceCount", 1)) for each in groups],
        )


def _problems(plan: StoredPlan, clusters: list[tuple[str, int]], *, now: float) -> Iterator[str]:
    found = plan.reservation
    status = found.status(now)
    if status not in {"Active", "Scheduled"}:
        yield f"Training plan {plan.arn} is in status {status}; it must be Active or Scheduled."
    if TRAINING not in found.target_resources:
        targets = ", ".join(found.target_resources)
        yield f"Training plan {plan.arn} is for {targets}, and cannot be used by training jobs."
    for instance_type, _ in clusters:
        if instance_type != found.instance_type:
            yield (
                f"Instance type {instance_type} does not match {found.instance_type}, the instance type of "
                f"training plan {plan.arn}."
            )
    wanted = sum(count for _, count in clusters)
    if wanted > found.usable_instances:
        yield (
            f"The job needs {wanted} instances; training plan {plan.arn} has {found.usable_instances}."
        )
