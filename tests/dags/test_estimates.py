"""Estimates of runs on a real engine: the second run of a kind is estimated by what the first one took."""

from __future__ import annotations

import json

import pytest

from tests.dags.test_train_end_to_end import result, run, stored
from tests.plugins.conftest import connection_json
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.team_spend import TeamSpend

pytestmark = [
    pytest.mark.dag_run,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]

TEAM = "estimates"


@pytest.fixture
def team_connection(aws_connection, monkeypatch) -> None:
    """The connection of a team with 50 USD a month."""
    given = {
        "bucket": aws_connection.bucket,
        "execution_role_arn": aws_connection.role_arn,
        "shortest_poll_s": 0.5,
        "rules_poll_interval_s": 1,
        "job_defaults": {"tags": {"team": TEAM}},
        "job_limits": {"team_month_usd": {TEAM: 50}},
    }
    connection = connection_json(aws_connection, trainyard=given)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection)


def test_second_run_is_estimated_by_the_first_one_and_both_count_for_their_team(
    database, team_connection, s3
) -> None:
    kind = {"hidden_size": 40}  # of no other test on this engine
    first, states = run(database, **kind)
    second, _ = run(database, **kind, max_steps=12)

    assert states["report"] == "success"
    before = result(first, "preflight")["plan"]["estimate"]
    assert all("of the same kind" not in each["basis"] for each in before["jobs"])
    learned = result(second, "preflight")["plan"]["estimate"]
    assert {each["basis"] for each in learned["jobs"]} == {"1 earlier job of the same kind"}
    records = [
        json.loads(stored(s3, result(each, "report")["report_json"])) for each in (first, second)
    ]
    cost = records[1]["cost"]
    assert cost["estimate_usd"] == learned["usd"]
    assert cost["estimate_error"] == pytest.approx(
        cost["total_usd"] / learned["usd"]["expected"] - 1
    )
    assert result(first, "preflight")["team"] == TEAM
    month = f"{second.start_date:%Y-%m}"
    spends = TeamSpend(AwsClients(ConnectionArguments())).of_month(TEAM, month)
    spent = {each.run_id: each.spent_usd for each in spends}
    for dag_run, record in zip((first, second), records, strict=True):
        assert spent[dag_run.run_id] == pytest.approx(record["ledger"]["total_usd"])
