"""Preflight asks Service Quotas, on a live engine, before anything is paid."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.testing import faults
from tests.plugins.test_preflight import preflight, refusal
from trainyard.errors import Finding, Severity
from trainyard.planning.evaluation_plan import Place
from trainyard.planning.quota_needs import EVALUATION, LONGEST_RUN, QuotaNeed
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.quota_check import quota_findings
from trainyard_airflow.tasks.end_to_end.jobs import (
    LastStepEvaluation,
    evaluation_spec,
    training_spec,
)
from trainyard_airflow.tasks.end_to_end.preflight import PreflightOperator
from trainyard_airflow.tasks.shared.run_state import RunState

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

TRAINING = "ml.m5.large for training job usage"


@pytest.fixture
def quotas(engine: Any) -> Iterator[Any]:
    """Set quotas; the defaults come back at the end."""

    def put(document: Any, method: str = "PUT") -> None:
        url, data = f"{engine.endpoint_url}/_engine/quotas", json.dumps(document).encode()
        request = urllib.request.Request(url, data=data, method=method)  # noqa: S310  # loopback
        urllib.request.urlopen(request, timeout=30).close()  # noqa: S310  # loopback

    yield put
    put({}, "DELETE")


def test_spot_instances_that_the_account_may_not_have_are_refused(aws_connection, task):
    message = refusal(
        task,
        instance_type="ml.g5.xlarge",
        instance_count=2,
        use_spot_instances=True,
        max_wait_s=7200,
    )

    assert "instance_type: needs more than the account's quota" in message
    assert "2 of 'ml.g5.xlarge for spot training job usage'" in message
    assert "at most 0 in us-east-1" in message


def test_all_quotas_that_are_too_small_are_told_at_once(aws_connection, task, quotas):
    quotas({"*": {TRAINING: 1, LONGEST_RUN: 60, "ml.m5.* for processing job usage": 0}})

    message = refusal(task, instance_count=2, global_batch_size=16, evaluation_place="processing")

    for where in ("instance_type", "max_run_s", "evaluation_instance_type"):
        assert f"{where}: needs more than the account's quota" in message


def test_a_rung_without_quota_is_warned_of_while_another_fits(aws_connection, task, quotas):
    ladder = [
        {"instance_type": "ml.m5.large", "use_spot_instances": True, "max_wait_s": 60},
        {"instance_type": "ml.m5.large", "use_spot_instances": False},
    ]
    quotas({"*": {"ml.m5.large for spot training job usage": 0}})

    warnings = preflight(task, capacity_ladder=ladder, max_wait_s=7200)["plan"]["warnings"]
    assert any("capacity_ladder[0]: needs more than" in each for each in warnings)

    quotas({"*": {"ml.m5.large *training job usage": 0, "ml.m5.large for training job usage": 0}})
    message = refusal(task, capacity_ladder=ladder, max_wait_s=7200)
    assert "capacity_ladder[1]: needs more than" in message


NO_PROCESSING = {"*": {"ml.*.* for processing job usage": 0}}


def test_an_evaluation_type_of_our_choice_without_quota_gives_way_to_the_last_step(
    aws_connection, task, quotas
):
    quotas(NO_PROCESSING)

    result = preflight(task)

    state = RunState.from_dict(result)
    training = {"instance_type": "ml.m5.large", "job_name": "j", "model_artifact": "s3://b/m"}
    given = {"paths": state.paths, "dataset_uri": "s3://b/d", "role": state.role}
    train = training_spec(state.conf, task_id="train", measures_test_split=True, **given)
    evaluate = evaluation_spec(state.conf, training=training, **given)
    assert result["plan"]["evaluation"]["place"] == Place.TRAINING
    assert "quota" in result["plan"]["evaluation"]["reason"]
    assert any(
        "the training job evaluates the test split as its last step" in each
        for each in result["plan"]["warnings"]
    )
    assert "test" in train.inputs
    assert isinstance(evaluate, LastStepEvaluation)


def test_an_evaluation_whose_quota_is_not_listed_keeps_its_job(aws_connection, task, monkeypatch):
    unlisted = Finding(where=EVALUATION, what="has no quota", severity=Severity.WARNING)
    monkeypatch.setattr(PreflightOperator, "quota_findings", lambda *_: iter([unlisted]))

    plan = preflight(task)["plan"]

    assert plan["evaluation"]["place"] == Place.PROCESSING
    assert str(unlisted) in plan["warnings"]


@pytest.mark.parametrize(
    ("fixed", "way_out"),
    [
        ({"evaluation_place": "processing"}, 'set evaluation_place to "training"'),
        ({"evaluation_instance_type": "ml.m5.xlarge"}, "leave it out"),
        ({"evaluation_max_run_s": 600}, 'set evaluation_place to "training"'),
    ],
    ids=["place", "type", "limit of the job"],
)
def test_a_fixed_evaluation_without_quota_is_refused_with_the_way_out(
    aws_connection, task, quotas, fixed, way_out
):
    quotas(NO_PROCESSING)

    message = refusal(task, **fixed)

    assert "evaluation_instance_type: needs more than the account's quota" in message
    assert way_out in message


def test_a_training_that_measures_itself_needs_no_processing_quota(aws_connection, task, quotas):
    quotas(NO_PROCESSING)

    warnings = preflight(task, evaluation_place="training")["plan"]["warnings"]

    assert not [each for each in warnings if "quota" in each]


def test_a_type_that_the_region_does_not_list_is_warned_of(aws_connection):
    need = QuotaNeed(where="instance_type", name="ml.x9.large for training job usage", amount=1)

    (finding,) = quota_findings(AwsClients(ConnectionArguments()), (need,))

    assert finding.where == "instance_type"
    assert finding.severity is Severity.WARNING
    assert finding.what.startswith("needs a quota that Service Quotas does not list in ")
    assert "may not offer the instance type" in finding.what


def test_quotas_that_nobody_may_read_are_a_warning(aws_connection, engine, task):
    denied = {"operation": "ListServiceQuotas", "code": "AccessDeniedException", "status": 400}
    with faults(engine.endpoint_url, {"what": "throttle", **denied}):
        warnings = preflight(task)["plan"]["warnings"]

    assert any("service quotas: cannot be checked" in each for each in warnings)
