"""Training plans that a run's `capacity_ladder` names: their state in the account, and findings on them."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from trainyard.errors import Finding, SpecError
from trainyard.sagemaker_api.training_plan import TrainingPlanState
from trainyard.specs.capacity_rung import plan_name
from trainyard_airflow.hooks.account_check import asked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainyard.specs.capacity_rung import CapacityRung
    from trainyard_airflow.hooks.aws_clients import AwsClients


def plan_state(clients: AwsClients, training_plan: str) -> TrainingPlanState:
    """Return the state of the training plan with this name or ARN.

    Raises:
        ClientError: the plan does not exist, the connection lacks permission to describe it, or the call was
            throttled.
    """
    sagemaker = clients.client("sagemaker")
    answer = sagemaker.describe_training_plan(TrainingPlanName=plan_name(training_plan))
    return TrainingPlanState.from_describe(answer)


def rung_plan(clients: AwsClients, index: int, rung: CapacityRung) -> TrainingPlanState | None:
    """Return the state of the training plan of `capacity_ladder[index]`; None if it names no plan.

    Raises:
        SpecError: the plan does not exist, or the connection lacks permission to describe it.
        ConnectionError: the service did not answer; the same call may succeed later.
        ThrottledError: the service throttled the call.
    """
    if rung.training_plan is None:
        return None
    return asked(
        partial(plan_state, clients, rung.training_plan),
        where=_place(index),
        got=rung.training_plan,
    )


def _place(index: int) -> str:
    return f"capacity_ladder[{index}].training_plan"


def plan_findings(
    clients: AwsClients, rungs: Sequence[CapacityRung], *, needed_s: float, reserve_s: float
) -> Iterator[Finding]:
    """Yield the findings on the training plans that the entries of a run's `capacity_ladder` name.

    Args:
        clients: the connection.
        rungs: the entries, with their instance counts.
        needed_s: expected seconds of the training.
        reserve_s: seconds that are reserved to stop a job.

    Raises:
        ConnectionError: the service did not answer; the same call may succeed later.
        ThrottledError: the service throttled the call.
    """
    for index, rung in enumerate(rungs):
        try:
            state = rung_plan(clients, index, rung)
        except SpecError as error:
            yield from error.findings
            continue
        if state is None:
            continue
        yield from state.findings(
            rung,
            time.time(),
            place=_place(index),
            reserve_s=reserve_s,
            needed_s=needed_s,
            has_other_rung=len(rungs) > 1,
        )
