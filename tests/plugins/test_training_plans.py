"""Training plans as rungs of a ladder, on a real engine: preflight, the stop in time, and the next rung."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.testing import advance_plans
from tests.plugins.test_capacity import event_of
from tests.plugins.test_preflight import preflight, refusal
from tests.plugins.test_training_job_operator import deferred, execute, operator
from trainyard.errors import CapacityError
from trainyard.sagemaker_api import training_plan
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TYPE = "ml.p5.4xlarge"
LEAD_S, RESERVE_S = 1800.0, 120
RESUMES = """
import pathlib, signal, sys, time
kept = pathlib.Path("/opt/ml/checkpoints/step")
if kept.exists():
    print("resumed at step " + kept.read_text(), flush=True)
    sys.exit()
def stop(*_):
    kept.write_text("7")
    sys.exit()
signal.signal(signal.SIGTERM, stop)
while True:
    time.sleep(0.05)
"""


def plan_of(engine: RunningEngine, *, left_s: float | None = None) -> dict[str, Any]:
    """Buy a day of one instance, and move the clock until as many seconds are left before its stop; None: do not."""
    sagemaker, name = engine.client("sagemaker"), f"plan-{uuid.uuid4().hex[:8]}"
    offers = sagemaker.search_training_plan_offerings(
        InstanceType=TYPE, InstanceCount=1, DurationHours=24, TargetResources=["training-job"]
    )["TrainingPlanOfferings"]
    sagemaker.create_training_plan(
        TrainingPlanName=name, TrainingPlanOfferingId=offers[0]["TrainingPlanOfferingId"]
    )
    plan = dict(sagemaker.describe_training_plan(TrainingPlanName=name))
    if left_s is not None:
        close_soon(engine, plan, left_s=left_s)
    return plan


def close_soon(engine: RunningEngine, plan: dict[str, Any], *, left_s: float) -> None:
    """Move the clock until `left_s` seconds are left before a job in the plan must stop."""
    end = engine.client("sagemaker").describe_training_plan(
        TrainingPlanName=plan["TrainingPlanName"]
    )["EndTime"]
    until_end_s = (end - datetime.now(UTC)).total_seconds()
    advance_plans(engine.endpoint_url, until_end_s - LEAD_S - RESERVE_S - left_s)


def ladder(plan: str, *others: dict[str, Any], **members: Any) -> list[dict[str, Any]]:
    return [{"instance_type": TYPE, "training_plan": plan, **members}, *others]


ON_DEMAND = {"instance_type": "ml.m5.large", "use_spot_instances": False}


def test_plan_that_does_not_exist_is_refused(aws_connection, task):
    message = refusal(task, capacity_ladder=ladder("nobody"), instance_count=1)
    assert "capacity_ladder[0].training_plan" in message
    assert "Could not find training plan" in message


def test_plan_with_too_few_instances_is_refused(aws_connection, task):
    plan = plan_of(aws_connection)["TrainingPlanName"]
    message = refusal(task, capacity_ladder=ladder(plan, instance_count=2), instance_count=2)
    assert "has fewer instances than the tier" in message


def test_plan_that_has_not_begun_is_warned_of(aws_connection, task):
    plan = plan_of(aws_connection)["TrainingPlanName"]
    conf = {"capacity_ladder": ladder(plan), "instance_count": 1}
    state = preflight(task, **conf)["plan"]
    assert any("has not begun; the training waits until" in each for each in state["warnings"])


def test_plan_needs_no_quota_of_instances_and_its_training_costs_nothing(aws_connection, task):
    plan = plan_of(aws_connection, left_s=40_000)["TrainingPlanArn"]
    state = preflight(
        task, capacity_ladder=ladder(plan), instance_count=1, evaluation_place="training"
    )["plan"]
    assert state["ceiling_usd"] == 0
    assert not [each for each in state["warnings"] if "capacity_ladder" in each]


def test_search_in_a_plan_is_refused(aws_connection, task):
    plan = plan_of(aws_connection)["TrainingPlanName"]
    message = refusal(task, capacity_ladder=ladder(plan), instance_count=1, tune=True)
    assert "tune: cannot be combined with a training plan" in message


@pytest.mark.slow
def test_training_is_stopped_before_its_window_ends_and_resumes_on_the_next_rung(
    aws_connection, task, script, caplog, monkeypatch
):
    monkeypatch.setattr(training_plan, "LEAST_USE_S", 5)
    plan = plan_of(aws_connection, left_s=45)
    spec = {
        **{key: value for key, value in script(RESUMES).items() if key != "instance_type"},
        "capacity_ladder": ladder(plan["TrainingPlanName"], ON_DEMAND),
        "checkpoint_s3_uri": f"s3://{aws_connection.bucket}/checkpoints/{task.run_id}",
        "forward_sigterm": True,
        "stop_reserve_s": RESERVE_S,
        "max_cost_usd": 5.0,
    }
    made = operator(spec, deferrable=True)

    first = deferred(made, task)
    with caplog.at_level("INFO"):
        event = event_of(first.trigger)
        with pytest.raises(type(first)) as again:
            made.execute_complete(task.context, event)
        result = made.execute_complete(task.context, event_of(again.value.trigger))

    assert "ends the instances of its training plan" in caplog.text
    assert "resumed at step 7" in caplog.text
    (earlier,) = result["earlier_attempts"]
    assert (earlier["rung"], earlier["status"]) == (0, "Stopped")
    assert earlier["training_plan"] == plan["TrainingPlanArn"]
    assert (result["rung"], result["status"]) == (1, "Completed")
    assert "no window with" in result["rung_reason"]


def test_closed_plan_leads_to_the_next_rung_or_to_an_error(aws_connection, task, script):
    plan = plan_of(aws_connection, left_s=60)["TrainingPlanName"]
    spec = {key: value for key, value in script("print(1)").items() if key != "instance_type"}
    alone = operator({**spec, "capacity_ladder": ladder(plan), "stop_reserve_s": RESERVE_S})

    with pytest.raises(CapacityError, match="no tier of the capacity ladder can be used"):
        execute(alone, task)
    both = {**spec, "capacity_ladder": ladder(plan, ON_DEMAND), "stop_reserve_s": RESERVE_S}
    assert execute(operator(both), task)["rung"] == 1


def test_job_in_a_plan_has_its_arn_and_its_ledger_entry_says_that_it_was_paid(
    aws_connection, task, script
):
    plan = plan_of(aws_connection, left_s=40_000)
    spec = script("print(1)", instance_type=TYPE, training_plan=plan["TrainingPlanName"])

    result = execute(operator(spec), task)

    assert (result["status"], result["training_plan"]) == ("Completed", plan["TrainingPlanArn"])
    assert result["rung_name"] == f"1 x {TYPE} in plan {plan['TrainingPlanName']!r}"
    clients = AwsClients(ConnectionArguments())
    objects = clients.client("s3").list_objects_v2(Bucket=aws_connection.bucket)["Contents"]
    (key,) = [
        each["Key"]
        for each in objects
        if "/ledger/" in each["Key"] and result["job_name"] in each["Key"]
    ]
    body = clients.client("s3").get_object(Bucket=aws_connection.bucket, Key=key)["Body"].read()
    entry = json.loads(body)
    assert (entry["cost_usd"], entry["training_plan"]) == (0.0, plan["TrainingPlanArn"])
