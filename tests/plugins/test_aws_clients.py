"""A connection's clients, and what its extra may say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments


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
    with pytest.raises(SpecError, match=r"extra trainyard\.deployment.*value of a tag"):
        _ = clients(monkeypatch, deployment=name).deployment


@pytest.mark.parametrize("pace", [0, -1, True, "2"])
def test_a_pace_that_is_no_time_is_rejected(monkeypatch: pytest.MonkeyPatch, pace: object) -> None:
    with pytest.raises(SpecError, match=r"extra trainyard\.shortest_poll_s.*is not a number of seconds"):
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
    with pytest.raises(SpecError, match=r"AWS region: is none of AWS's; got 'moon-1'"):
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
