"""Training plans of a run's rungs: their state in the account, and preflight's findings on them."""

from __future__ import annotations

import time
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
    """Return the state of a plan that is given by name or ARN.

    Raises:
        ClientError: the plan does not exist, or the connection may not describe it.
    """
    sagemaker = clients.client("sagemaker")
    answer = sagemaker.describe_training_plan(TrainingPlanName=plan_name(training_plan))
    return TrainingPlanState.from_describe(answer)


def plan_findings(
    clients: AwsClients, rungs: Sequence[CapacityRung], *, needed_s: float, reserve_s: float
) -> Iterator[Finding]:
    """Yield the findings on the training plans of a run's rungs.

    Args:
        clients: the connection.
        rungs: the rungs, with their instance counts.
        needed_s: expected seconds of the training.
        reserve_s: seconds that are reserved to stop a job.

    Raises:
        ConnectionError: the service did not answer; the same call may succeed later.
        ThrottledError: the service throttled the call.
    """
    for index, rung in enumerate(rungs):
        if rung.training_plan is None:
            continue
        where = f"capacity_ladder[{index}].training_plan"
        try:
            state = asked(
                lambda plan=rung.training_plan: plan_state(clients, plan),  # type: ignore[misc]
                where=where,
                got=rung.training_plan,
            )
        except SpecError as error:
            yield from error.findings
            continue
        yield from state.findings(
            rung,
            time.time(),
            place=where,
            reserve_s=reserve_s,
            needed_s=needed_s,
            has_other_rung=len(rungs) > 1,
        )
