"""Budgets of teams against a real S3: a run reserves its part, and the last money is given once."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from threading import Barrier, Thread
from typing import Any

import pytest
from airflow.sdk.api.datamodels._generated import DagRun, DagRunState, DagRunType
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from tests.plugins.conftest import connection_json
from tests.plugins.test_preflight import preflight, refusal
from trainyard.errors import SpecError
from trainyard.runs.ledger import Ledger, LedgerEntry, PaidKind
from trainyard.sagemaker_api.names import run_slug
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.hooks.team_spend import TeamSpend, run_spend

pytestmark = pytest.mark.engine

NOVEMBER = datetime(2026, 11, 20, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)


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


def dag_run(run_id: str = "run", *, moment: datetime = NOVEMBER, clear_number: int = 0) -> DagRun:
    return DagRun.model_construct(
        dag_id="plugins_test",
        run_id=run_id,
        run_after=moment,
        start_date=moment,
        run_type=DagRunType.MANUAL,
        state=DagRunState.RUNNING,
        consumed_asset_events=[],
        clear_number=clear_number,
        triggering_user_name="ana",
    )


def clients() -> AwsClients:
    return AwsClients(ConnectionArguments())


def spend_of(run_id: str = "run", *, state: Any = None, **given: Any) -> Any:
    return run_spend(clients(), {"dag_run": dag_run(run_id, **given)}, state=state)


def reserve(run_id: str, usd: float | None, **given: Any) -> list[str]:
    found = TeamSpend(clients()).reserve(spend_of(run_id, **given), needed_usd=usd)
    return [each.got or "" for each in found]


def close(run_id: str, *costs: float | None, is_over: bool = True, **given: Any) -> None:
    """Close a run whose jobs cost this; if it is not over, one more job still runs."""
    entries = [entry(number, settled_at=2.0, cost_usd=usd) for number, usd in enumerate(costs)]
    entries += [] if is_over else [entry(len(costs))]
    TeamSpend(clients()).close(spend_of(run_id, **given), Ledger.of(entries))


def entry(number: int, **given: Any) -> LedgerEntry:
    name = f"job-{number}"
    return LedgerEntry(kind=PaidKind.TRAINING, name=name, task_id="train", intended_at=1.0, **given)


def counted(team: str, month: str = "2026-11") -> list[float]:
    return [each.counted_usd for each in TeamSpend(clients()).of_month(team, month)]


def test_reservations_and_spending_count_until_the_month_is_used_up(team):
    assert reserve("one", 60) == []
    assert "$60.00 reserved" in reserve("two", 60)[0]
    close("one", 25.0)

    assert reserve("two", 60) == []
    assert counted(team) == [25, 60]


def test_cleared_run_that_is_refused_counts_what_it_spent(team):
    reserve("one", 95)
    close("one", 90.0)

    assert "$90.00 spent" in reserve("one", 20, clear_number=1)[0]
    assert counted(team) == [90]


def test_cleared_run_that_is_admitted_counts_what_it_spent_and_reserves(team):
    reserve("one", 95)
    close("one", 70.0)

    assert reserve("one", 20, clear_number=1) == []
    assert counted(team) == [90]
    close("one", 70.0, 15.0, clear_number=1)
    assert counted(team) == [85]


def test_run_of_unknown_price_that_is_refused_counts_what_it_spent(team):
    reserve("one", 95)
    close("one", 40.0)

    assert "an unknown cost" in reserve("one", None, clear_number=1)[0]
    assert counted(team) == [40]


@pytest.mark.parametrize(
    ("costs", "is_over"), [((10.0,), False), ((10.0, None), True)], ids=["running", "no price"]
)
def test_reservation_is_kept_until_every_cost_is_known(team, costs, is_over):
    reserve("one", 60)
    close("one", *costs, is_over=is_over)

    assert counted(team) == [60]
    assert "$10.00 spent and $50.00 reserved" in reserve("two", 60)[0]
    close("one", 10.0, 5.0)
    assert sum(counted(team)) == 15


def test_cleared_run_keeps_the_month_in_which_it_first_started(team):
    reserve("one", 60)
    close("one", 30.0)
    again = {"moment": DECEMBER, "clear_number": 1}

    assert reserve("one", 50, **again) == []
    assert (counted(team), counted(team, "2026-12")) == ([80], [])
    close("one", 30.0, 40.0, **again)
    assert (counted(team), counted(team, "2026-12")) == ([70], [])


def test_rejected_run_that_is_cleared_in_the_next_month_counts_in_that_month(team):
    reserve("other", 95)
    assert reserve("one", 50) != []
    again = {"moment": DECEMBER, "clear_number": 1}

    assert reserve("one", 50, **again) == []
    assert (sum(counted(team)), counted(team, "2026-12")) == (95, [50])


def test_report_counts_in_the_team_and_month_of_preflight(team):
    reserve("one", 60)
    state = {"team": team, "team_month": "2026-11"}
    close("one", 30.0, state=state, moment=DECEMBER, clear_number=1)

    assert (counted(team), counted(team, "2026-12")) == ([30], [])


@pytest.mark.parametrize("waits_for", ["after-call.s3.PutObject", "before-call.s3.PutObject"])
def test_two_runs_at_the_same_time_never_both_take_the_last_money(team, waits_for):
    both, outcomes = Barrier(2, timeout=30), {}

    def start(run_id: str) -> None:
        own, waited = clients(), []

        def wait(**_: Any) -> None:
            if not waited:
                waited.append(both.wait())

        own.client("s3").meta.events.register(waits_for, wait)
        found = TeamSpend(own).reserve(spend_of(run_id), needed_usd=60)
        outcomes[run_id] = list(found)

    threads = [Thread(target=start, args=(each,)) for each in ("one", "two")]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)

    admitted = [run_id for run_id, found in outcomes.items() if not found]
    assert len(outcomes) == 2
    assert len(admitted) <= 1
    assert sum(counted(team)) == 60 * len(admitted)


def test_unreadable_document_is_a_finding_with_its_key_and_reserves_nothing(
    engine, team, task, monkeypatch
):
    reserve("broken", 1)
    uri = overwrite(team, "broken", b"{")
    monkeypatch.setattr(type(task), "context", property(with_dag_run(type(task).context.fget)))

    message = refusal(task)

    assert uri in message
    assert "correct the document, or delete it if its run has ended" in message
    overwrite(team, "broken", spend_of("broken").to_json().encode())
    assert sum(counted(team)) == 0


def test_own_unreadable_document_is_not_overwritten(team):
    reserve("one", 1)
    overwrite(team, "one", b"{")

    with pytest.raises(SpecError, match="plugins_test--one"):
        reserve("one", 1)
    with pytest.raises(SpecError, match="plugins_test--one"):
        close("one", 1.0)


def overwrite(team: str, run_id: str, content: bytes) -> str:
    """Replace a run's document, and return its address."""
    own = clients()
    name = f"plugins_test--{run_slug(run_id)}.json"
    uri = f"{own.root}/spend/{run_slug(team)}/2026-11/{name}"
    S3Objects(own.client("s3")).write(uri, content, content_type="application/json")
    return uri


@pytest.mark.parametrize("operation", ["ListObjectsV2", "PutObject"])
def test_rejection_by_s3_is_a_finding(engine, team, task, monkeypatch, operation):
    monkeypatch.setattr(type(task), "context", property(with_dag_run(type(task).context.fget)))
    deny(monkeypatch, operation, below="/spend/")

    message = refusal(task)

    assert f"S3 rejected {operation} on the team's spend documents" in message
    assert "AccessDenied" in message
    assert "allow the connection s3:ListBucket" in message


def deny(monkeypatch: Any, operation: str, *, below: str) -> None:
    """Have S3 answer AccessDenied to these calls, if they name a key or prefix with `below`."""
    send = BaseClient._make_api_call

    def answer(self: Any, operation_name: str, api_params: dict[str, Any]) -> Any:
        at = str(api_params.get("Key") or api_params.get("Prefix"))
        if operation_name == operation and below in at:
            denied = {"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}
            raise ClientError(denied, operation_name)
        return send(self, operation_name, api_params)

    monkeypatch.setattr(BaseClient, "_make_api_call", answer)


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

    assert f"the budget of team {team} for 2026-11 has too little left" in message
    assert "nothing spent yet" in message


def test_preflight_reserves_the_high_of_its_estimate(team, task, monkeypatch):
    monkeypatch.setattr(type(task), "context", property(with_dag_run(type(task).context.fget)))

    state = preflight(task)

    (spend,) = TeamSpend(clients()).of_month(team, "2026-11")
    assert spend.user == "ana"
    assert spend.reserved_usd == state["plan"]["estimate"]["usd"]["high"]
    assert (state["team"], state["team_month"]) == (team, "2026-11")


def test_preflight_of_a_cleared_run_returns_its_first_month(team, task, monkeypatch):
    reserve("run", 1)
    again = dag_run(moment=DECEMBER, clear_number=1)
    monkeypatch.setattr(
        type(task), "context", property(with_dag_run(type(task).context.fget, again))
    )

    assert preflight(task)["team_month"] == "2026-11"
    assert counted(team, "2026-12") == []


def test_connection_with_budgets_must_name_a_team(engine, task, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection(engine, team=None))
    monkeypatch.setattr(type(task), "context", property(with_dag_run(type(task).context.fget)))

    assert "has no team tag, but job_limits has team budgets" in refusal(task)


def with_dag_run(context: Any, given: DagRun | None = None) -> Any:
    """Return a property's function that also has Airflow's run."""
    return lambda self: {**context(self), "dag_run": given or dag_run()}


def test_budget_that_is_no_amount_is_refused(engine, task, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection(engine, team="a", usd=-1))

    assert "team_month_usd.*: is not an amount of money" in refusal(task)
