"""A connection's clients, and what its extra may say."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from airflow.dag_processing.dagbag import DagBag

from trainyard.errors import SpecError
from trainyard.new_project.__main__ import EXAMPLE, Platform, files_of
from trainyard.retry_table import retry_rule
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments

if TYPE_CHECKING:
    from pathlib import Path

    from tests.plugins.conftest import TaskSurroundings


def clients(
    monkeypatch: pytest.MonkeyPatch, *, region: str = "us-east-1", **trainyard: Any
) -> AwsClients:
    """Return the clients of a connection whose extra says this."""
    extra = {"region_name": region, "trainyard": trainyard}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps({"conn_type": "aws", "extra": extra}))
    return AwsClients(ConnectionArguments())


def test_a_connection_names_its_deployment_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clients(monkeypatch, deployment="team a/prod").deployment == "team a/prod"
    assert clients(monkeypatch, deployment="").deployment is None
    assert clients(monkeypatch).deployment is None


@pytest.mark.parametrize("name", ["team,a", "é", "x" * 257, "a\nb", 7])
def test_a_deployment_that_no_tag_can_carry_is_rejected(
    monkeypatch: pytest.MonkeyPatch, name: object
) -> None:
    with pytest.raises(SpecError, match=r"extra trainyard\.deployment.*value of an AWS tag"):
        _ = clients(monkeypatch, deployment=name).deployment


@pytest.mark.parametrize("pace", [0, -1, True, "2"])
def test_a_pace_that_is_no_time_is_rejected(monkeypatch: pytest.MonkeyPatch, pace: object) -> None:
    with pytest.raises(
        SpecError, match=r"extra trainyard\.shortest_poll_s.*not a positive number of seconds"
    ):
        _ = clients(monkeypatch, shortest_poll_s=pace).shortest_poll_s


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        ("eu-west-1", "aws"),
        ("cn-north-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
        ("eu-newer-7", "aws"),
    ],
)
def test_a_region_has_its_partition(
    monkeypatch: pytest.MonkeyPatch, region: str, partition: str
) -> None:
    assert clients(monkeypatch, region=region).partition == partition


def test_a_region_of_nobody_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match=r"AWS region: is not a region of AWS; got 'moon-1'"):
        _ = clients(monkeypatch, region="moon-1").partition


def test_clients_come_from_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    made = clients(monkeypatch)

    loaders = {id(made.client(name)._loader) for name in ("sts", "iam", "sns")}

    assert len(loaders) == 1


def test_all_connections_of_a_process_share_the_service_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHARING", json.dumps({"conn_type": "aws"}))
    first, second = (
        AwsClients(ConnectionArguments(aws_conn_id="sharing", region_name=region))
        for region in ("us-east-1", "eu-west-1")
    )

    loaders = [each.session._session.get_component("data_loader") for each in (first, second)]

    assert first.session is not second.session
    assert loaders[0] is loaders[1]


def test_a_connection_that_does_not_exist_is_named_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_AWS_DEFAULT", raising=False)

    with pytest.raises(SpecError, match=r"'aws_default': does not exist.*`trainyard engine`"):
        AwsClients(ConnectionArguments()).execution_role()


def test_an_example_without_its_connection_fails_with_the_next_step_and_without_a_retry(
    monkeypatch: pytest.MonkeyPatch, task: TaskSurroundings, tmp_path: Path
) -> None:
    for name in [each for each in os.environ if each.startswith(("AWS_", "AIRFLOW_CONN_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for name, text in files_of(Platform.PLAIN).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    bag = DagBag(tmp_path / "dags", bundle_path=tmp_path, bundle_name="dags-folder")
    operator = bag.dags[EXAMPLE].task_dict["train"]
    operator.render_template_fields({**task.context, "params": {"max_steps": 1}})

    with pytest.raises(SpecError, match=r"'aws_default': does not exist") as raised:
        type(operator).execute.__wrapped__(operator, task.context)

    rule = retry_rule(raised.value)
    assert rule is not None
    assert not rule.retry


@pytest.mark.parametrize(
    ("endpoint", "has_console"),
    [
        (None, True),
        ("https://vpce-0a1b-2c3d.api.sagemaker.us-east-1.vpce.amazonaws.com", True),
        ("http://127.0.0.1:4566", False),
        ("https://amazonaws.com.example.org", False),
    ],
    ids=["default", "vpc-endpoint", "engine", "other"],
)
def test_the_console_shows_only_jobs_at_an_endpoint_of_aws(
    monkeypatch: pytest.MonkeyPatch, endpoint: str | None, has_console: bool
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    extra = {"region_name": "us-east-1", **({"endpoint_url": endpoint} if endpoint else {})}
    connection = {"conn_type": "aws", "login": "key", "password": "secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))

    assert AwsClients(ConnectionArguments()).has_console is has_console
