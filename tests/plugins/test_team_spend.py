"""Budgets of teams against a real S3: a run reserves its part, and the last money is given once."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk.api.datamodels._generated import DagRun, DagRunState, DagRunType

from tests.plugins.conftest import connection_json
from tests.plugins.test_preflight import preflight, refusal
from trainyard.runs.ledger import Ledger, LedgerEntry, PaidKind
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.team_spend import TeamSpend, run_spend

pytestmark = pytest.mark.engine


@pytest.fixture
def team(engine, monkeypatch) -> str:
    """A team of its own with 100 USD a month, and a cap of 60 USD on what its run may need."""
    name = f"team-{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection(engine, team=name))
    return name


def connection(engine: Any, *, team: str | None, usd: float = 100.0) -> str:
    given: dict[str, Any] = {
        "bucket": engine.bucket,
        "execution_role_arn": engine.role_arn,
        "job_limits": {"team_month_usd": {"*": usd}},
        "job_defaults": {"tags": {"team": team}} if team else {},
    }
    return connection_json(engine, trainyard=given)


def dag_run(run_id: str = "run", user: str | None = "ana") -> DagRun:
    moment = datetime(2026, 11, 20, tzinfo=UTC)
    return DagRun.model_construct(
        dag_id="plugins_test",
        run_id=run_id,
        run_after=moment,
        start_date=moment,
        run_type=DagRunType.MANUAL,
        state=DagRunState.RUNNING,
        consumed_asset_events=[],
        triggering_user_name=user,
    )


def clients() -> AwsClients:
    return AwsClients(ConnectionArguments())


def spend_of(run_id: str = "run") -> Any:
    return run_spend(clients(), dag_run(run_id), dag_id="plugins_test")


def reserve(run_id: str, usd: float) -> list[str]:
    found = TeamSpend(clients()).reserve(spend_of(run_id), needed_usd=usd)
    return [each.got or "" for each in found]


def test_reservations_and_spending_count_until_the_month_is_used_up(team):
    assert reserve("one", 60) == []
    assert "$60.00 reserved" in reserve("two", 60)[0]
    entry = LedgerEntry(
        kind=PaidKind.TRAINING,
        name="job",
        task_id="train",
        intended_at=1.0,
        settled_at=2.0,
        cost_usd=25.0,
    )
    TeamSpend(clients()).close(spend_of("one"), Ledger.of([entry]))

    assert reserve("two", 60) == []
    assert [each.counted_usd for each in TeamSpend(clients()).of_month(team, "2026-11")] == [25, 60]


def test_run_that_was_refused_reserves_nothing(team):
    assert reserve("one", 200)

    assert reserve("two", 100) == []


def test_preflight_that_is_tried_again_counts_once(team):
    assert reserve("one", 70) == []
    assert reserve("one", 70) == []


def test_preflight_refuses_a_run_beyond_its_teams_month(engine, team, task, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection(engine, team=team, usd=0.001))
    monkeypatch.setattr(type(task), "context", property(with_dag_run(type(task).context.fget)))

    message = refusal(task)

    assert f"leaves too little to team {team} in 2026-11" in message
    assert "nothing spent yet" in message


def test_preflight_reserves_the_high_of_its_estimate(team, task, monkeypatch):
    monkeypatch.setattr(type(task), "context", property(with_dag_run(type(task).context.fget)))

    state = preflight(task)

    (spend,) = TeamSpend(clients()).of_month(team, "2026-11")
    assert spend.user == "ana"
    assert spend.reserved_usd == state["plan"]["estimate"]["usd"]["high"]


def test_connection_with_budgets_must_name_a_team(engine, task, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection(engine, team=None))
    monkeypatch.setattr(type(task), "context", property(with_dag_run(type(task).context.fget)))

    assert "names no team, and job_limits has budgets of teams" in refusal(task)


def with_dag_run(context: Any) -> Any:
    """Return a property's function that also has Airflow's run."""
    return lambda self: {**context(self), "dag_run": dag_run()}


def test_budget_that_is_no_amount_is_refused(engine, task, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection(engine, team="a", usd=-1))

    assert "team_month_usd.*: is no amount of money" in refusal(task)
