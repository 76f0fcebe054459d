"""Planning as a task: the form's fields are the request's, the table goes to the log, the plans are the result."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields

import pytest
from structlog.testing import capture_logs

from trainyard.errors import PlanError, SpecError
from trainyard.planning.plan_request import PlanRequest
from trainyard_airflow.tasks.end_to_end.planning import FORM, PlanOperator

P4D = "ml.p4d.24xlarge"


def plan(**given):
    """Return what the task returns for params."""
    params = {name: param.value for name, param in FORM.params().items()} | given
    operator = PlanOperator(task_id="plan")
    return PlanOperator.execute.__wrapped__(operator, {"params": params})


def test_params_are_the_fields_of_the_request_with_its_defaults():
    params = FORM.params()
    declared = {each.name: each.default for each in fields(PlanRequest)}

    assert set(params) == set(declared)
    for name, default in declared.items():
        param = params[name]
        assert param.schema["title"]
        assert param.schema["section"]
        param.resolve()
        if default is not MISSING and name != "model":
            assert param.value == (list(default) if isinstance(default, tuple) else default)


def test_plans_are_returned_as_data_and_shown_in_the_log():
    with capture_logs() as logged:
        result = plan(instance_types=[P4D], max_instances=2)

    assert json.loads(json.dumps(result)) == result
    assert [each["rank"] for each in result["plans"]] == [1, 2]
    assert result["plans"][0]["instance_type"] == P4D
    lines = [str(each["event"]) for each in logged]
    assert any(line.startswith(f"1  1 x {P4D}") for line in lines)
    assert any(line.startswith("memory of a rank in plan 1: parameters 475 MiB") for line in lines)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"num_parameters": 1e9}, SpecError),
        ({"model": "llama3-70b", "instance_types": ["ml.g5.xlarge"]}, PlanError),
    ],
)
def test_what_cannot_be_planned_fails_the_task(given, error):
    with pytest.raises(error):
        plan(**given)
