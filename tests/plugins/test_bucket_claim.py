"""A bucket is used by one Airflow without a name; a second one is refused before it touches a job."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetVariable, VariableResult

from tests.plugins.conftest import TaskSurroundings, connection_json
from trainyard.errors import SpecError
from trainyard.sagemaker_api.names import UNNAMED_MARKER
from trainyard_airflow.hooks import bucket_claim
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.bucket_claim import claim_bucket, variable_of
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.tasks.end_to_end.params import FORM
from trainyard_airflow.tasks.end_to_end.preflight import PreflightOperator
from trainyard_airflow.tasks.end_to_end.report import ReportOperator

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine

REFUSED = (
    "trainyard.deployment: is not set, and another Airflow uses the bucket without this setting"
)
PRINTS = 'print("trained")\n'


@dataclass
class Airflow:
    """The variables of one Airflow, as its API serves them to tasks."""

    variables: dict[str, str] = field(default_factory=dict)
    stores: bool = True

    def send(self, message: Any) -> Any:
        if isinstance(message, GetVariable):
            value = self.variables.get(message.key)
            return VariableResult(key=message.key, value=value) if value else ErrorResponse()
        if not self.stores:
            raise ConnectionError("no variable is stored")
        self.variables[message.key] = message.value
        return None


@pytest.fixture
def bucket(engine: RunningEngine) -> str:
    """A bucket that no Airflow has used."""
    name = f"claimed-{uuid.uuid4().hex[:8]}"
    engine.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def enter(
    engine: RunningEngine, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Airflow]:
    """Let the tasks that follow belong to an Airflow, with a connection to the bucket."""

    def entered(airflow: Airflow, **trainyard: Any) -> Airflow:
        place = {"bucket": bucket, "execution_role_arn": engine.role_arn, **trainyard}
        connection = connection_json(engine, trainyard=place)
        monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection)
        monkeypatch.setattr(bucket_claim, "_PAUSES_S", (0.0,))
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", airflow, raising=False)
        return airflow

    return entered


def claim(bucket: str, pause: Callable[[float], None] = lambda _: None) -> None:
    claim_bucket(AwsClients(ConnectionArguments()), bucket, pause=pause)


def trained(spec: Any, run_id: str) -> Any:
    made = TrainingJobOperator(task_id="train", spec=spec, deferrable=False, poll_interval_s=1)
    return TrainingJobOperator.execute.__wrapped__(made, TaskSurroundings(run_id=run_id).context)


@pytest.mark.slow
def test_a_second_airflow_neither_adopts_nor_pays_for_the_job_of_the_first(enter, bucket, script):
    first = enter(Airflow())
    done = trained(script(PRINTS), "scheduled")

    enter(Airflow())
    with pytest.raises(SpecError, match=REFUSED) as refused:
        trained(script(PRINTS), "scheduled")

    assert variable_of(bucket) in str(refused.value)
    enter(first)
    assert trained(script(PRINTS), "scheduled")["arn"] == done["arn"]


def test_preflight_refuses_with_its_other_findings_and_the_report_stops_nothing(enter, bucket):
    enter(Airflow())
    claim(bucket)

    enter(Airflow())
    params = {**FORM.defaults, "source": "/nowhere"}
    context = TaskSurroundings().context | {"params": params}
    with pytest.raises(SpecError, match=REFUSED) as refused:
        PreflightOperator.execute.__wrapped__(PreflightOperator(task_id="preflight"), context)

    assert "/nowhere" in str(refused.value)
    report = ReportOperator(task_id="report")
    with pytest.raises(AirflowSkipException), report._unless_preflight_failed(None):
        report._paths(context, None)


def test_a_name_or_the_id_of_the_other_airflow_opens_the_bucket(enter, bucket, engine):
    enter(Airflow())
    claim(bucket)

    enter(Airflow(), deployment="staging")
    claim(bucket)
    document = engine.client("s3").get_object(Bucket=bucket, Key=UNNAMED_MARKER)["Body"].read()
    enter(Airflow({variable_of(bucket): json.loads(document)["airflow"]}))
    claim(bucket)


def test_a_task_that_lost_the_race_waits_for_the_id_of_its_own_airflow(enter, bucket, monkeypatch):
    """The other task has created the marker, and stores the variable two reads later."""
    airflow = enter(Airflow())
    claim(bucket)
    stored = airflow.variables.pop(variable_of(bucket))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            airflow.variables[variable_of(bucket)] = stored

    monkeypatch.setattr(bucket_claim, "_PAUSES_S", (1.0, 1.0, 1.0))
    claim(bucket, pause)

    assert len(pauses) == 2


def test_a_marker_that_expired_is_written_again_with_the_same_id(enter, bucket, engine):
    airflow, s3 = enter(Airflow()), engine.client("s3")
    claim(bucket)
    s3.delete_object(Bucket=bucket, Key=UNNAMED_MARKER)

    claim(bucket)

    document = json.loads(s3.get_object(Bucket=bucket, Key=UNNAMED_MARKER)["Body"].read())
    assert document == {"airflow": airflow.variables[variable_of(bucket)]}


def test_an_airflow_that_stores_no_variable_goes_on_and_leaves_no_marker(
    enter, bucket, engine, caplog
):
    enter(Airflow(stores=False))

    claim(bucket)

    assert "is not claimed, because Airflow cannot store a variable" in caplog.text
    assert "Contents" not in engine.client("s3").list_objects_v2(Bucket=bucket)


def test_a_bucket_whose_marker_cannot_be_read_is_used_with_a_warning(enter, caplog):
    enter(Airflow())

    claim("no-such-bucket-of-anyone")

    assert "may use bucket no-such-bucket-of-anyone" in caplog.text
    assert Variable.get(variable_of("no-such-bucket-of-anyone"), default=None) is None
