"""Spend of the fleet page and of the metrics, on rows of Airflow's database."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from trainyard.runs.live.fleet import month_start
from trainyard_airflow.operators.sagemaker_job import JOB_XCOM_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

pytestmark = [pytest.mark.dag_run, pytest.mark.filterwarnings("ignore")]

DAG_ID, OWN_DAG_ID = "month_spend", "month_spend_own_operators"
NUM_RUNS = 505
NOW = time.time()
MONTH = month_start(NOW)
BEFORE = MONTH - timedelta(days=3)
JOB = {"instance_type": "ml.m5.large", "instance_count": 2, "billable_seconds": 3600}  # $0.23
REPORTED = {"preflight": {"team": "research", "conf": {"seed": 1}}, "report": {"cost_usd": 2.0}}
MAPPED = ("many", 0)


@pytest.fixture(scope="module")
def month(database: Callable[[str], Any]) -> None:
    """More runs of this month than the fleet page lists, and before them runs of every kind."""
    from airflow.models.dag import DagModel, DagTag  # noqa: TID251  # a test may write the database
    from airflow.utils.session import create_session

    with create_session() as session:
        for dag_id in (DAG_ID, OWN_DAG_ID):
            session.add(
                DagModel(  # type: ignore[no-untyped-call]  # Airflow's
                    dag_id=dag_id,
                    bundle_name="dags-folder",
                    is_paused=False,
                    tags=[DagTag(name="trainyard")],
                )
            )
        session.flush()
        put = _writer(session)
        put(DAG_ID, "ended last month", end=BEFORE, results={"report": {"cost_usd": 1000.0}})
        put(DAG_ID, "began last month", end=MONTH, results={"report": {"cost_usd": 100.0}})
        put(
            DAG_ID,
            "still runs",
            state="running",
            results={"report": None, "train": None},
            job="job",
        )
        put(DAG_ID, "runs trials", state="running", results={"report": None, MAPPED: None})
        put(DAG_ID, "no state", state=None, results={"report": None})
        put(OWN_DAG_ID, "a job", end=MONTH, results={"train": JOB}, job="job")
        put(OWN_DAG_ID, "mapped", end=MONTH, results={"train": JOB, MAPPED: JOB}, job="job")
        for number in range(NUM_RUNS):
            put(DAG_ID, f"run {number}", end=MONTH, results=REPORTED)
        for number in range(500):
            put(DAG_ID, f"unpaid {number}", end=MONTH, results={"report": {"cost_usd": 0.0}})


def _writer(session: Any) -> Callable[..., None]:
    from airflow.models.dagrun import DagRun  # noqa: TID251  # as above
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251
    from airflow.models.xcom import XComModel  # noqa: TID251
    from sqlalchemy import insert

    def put(
        dag_id: str,
        run_id: str,
        *,
        results: Mapping[Any, Any],
        state: str | None = "success",
        end: datetime | None = None,
        job: str | None = None,
    ) -> None:
        where = {"dag_id": dag_id, "run_id": run_id}
        run = {"state": state, "run_type": "manual", "run_after": BEFORE}
        times = {"start_date": BEFORE - timedelta(hours=1), "end_date": end}
        made = session.execute(insert(DagRun).values(**where, **run, **times))
        (dag_run_id,) = made.inserted_primary_key
        pool = {"pool": "default_pool", "pool_slots": 1, "try_number": 1, "max_tries": 0}
        for key, value in results.items():
            task_id, map_index = key if isinstance(key, tuple) else (key, -1)
            of_task = {**where, "task_id": task_id, "map_index": map_index}
            session.execute(insert(TaskInstance).values(**of_task, **pool, state="success"))
            left = {"return_value": value, JOB_XCOM_KEY: job if task_id == "train" else None}
            for name, content in left.items():
                if content is not None:
                    of_xcom = {"dag_run_id": dag_run_id, "key": name, "value": content}
                    session.execute(insert(XComModel).values(**of_task, **of_xcom))

    return put


@pytest.fixture(scope="module")
def admin(month: None) -> Any:
    """A user who may read every DAG, with the auth manager of this Airflow."""
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    create_auth_manager().init()
    return SimpleAuthManagerUser(username="admin", role="admin")


def month_runs() -> list[Any]:
    from airflow.utils.session import create_session

    from trainyard_airflow.pages.airflow_runs import list_month_runs

    with create_session() as session:
        return list_month_runs(session, dag_ids={DAG_ID, OWN_DAG_ID}, since=MONTH)


def test_the_spend_is_that_of_more_runs_than_are_listed(admin: Any) -> None:
    from trainyard_airflow.pages.app import MOST_RUNS, fleet_data

    fleet = fleet_data(admin, limit=MOST_RUNS)

    assert len(fleet["runs"]) == MOST_RUNS == 500
    assert fleet["spend"]["by_dag"][DAG_ID]["usd"] == pytest.approx(100 + 2 * NUM_RUNS)
    assert fleet["spend"]["by_team"]["research"]["usd"] == pytest.approx(2 * NUM_RUNS)


def test_a_shorter_list_has_the_same_spend(admin: Any) -> None:
    from trainyard_airflow.pages.app import MOST_RUNS, fleet_data

    short, whole = fleet_data(admin, limit=1), fleet_data(admin, limit=MOST_RUNS)

    assert len(short["runs"]) == 1
    assert short["spend"] == whole["spend"]


def test_the_metrics_have_the_spend_of_every_run_of_the_month(admin: Any) -> None:
    from trainyard_airflow.pages.app import metrics

    text = bytes(metrics(admin).body).decode()

    found = {
        sample.labels["team"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "trainyard_team_spend_usd"
    }
    assert found["research"] == pytest.approx(2 * NUM_RUNS)


def test_runs_of_the_month_are_those_that_ended_in_it_or_have_not_ended(month: None) -> None:
    found = {run.run_id: run for run in month_runs()}

    assert {"began last month", "still runs", "no state"} <= found.keys()
    assert found["still runs"].jobs == {"train": "job"}
    assert "ended last month" not in found


def test_a_running_run_with_mapped_tasks_has_jobs_that_are_not_read(month: None) -> None:
    found = {run.run_id: run for run in month_runs()}

    assert found["runs trials"].has_unread_jobs
    assert not found["still runs"].has_unread_jobs


def test_a_reported_run_has_only_its_team_and_its_cost(month: None) -> None:
    (run,) = (each for each in month_runs() if each.run_id == "run 0")

    assert run.returned == {"preflight": {"team": "research"}, "report": {"cost_usd": 2.0}}
    assert (run.tasks, run.jobs, run.settings) == ((), {}, {})


def test_a_run_without_a_report_has_its_jobs_and_mapped_tasks(month: None) -> None:
    runs = {each.run_id: each for each in month_runs() if each.dag_id == OWN_DAG_ID}

    assert (runs["a job"].jobs, runs["a job"].returned) == ({"train": "job"}, {"train": JOB})
    assert [each.task_id for each in runs["mapped"].tasks] == ["many"]


def test_runs_of_the_month_are_read_by_the_same_number_of_queries(month: None) -> None:
    from airflow.settings import engine
    from airflow.utils.session import create_session
    from sqlalchemy import event

    from trainyard_airflow.pages.airflow_runs import list_month_runs

    def num_queries(dag_ids: Iterable[str], since: datetime) -> int:
        asked: list[str] = []

        def note(*arguments: Any) -> None:
            asked.append(arguments[2])

        event.listen(engine, "before_cursor_execute", note)
        try:
            with create_session() as session:
                list_month_runs(session, dag_ids=set(dag_ids), since=since)
        finally:
            event.remove(engine, "before_cursor_execute", note)
        return len(asked)

    few = num_queries([OWN_DAG_ID], datetime.now(UTC) + timedelta(days=1))
    assert num_queries([DAG_ID, OWN_DAG_ID], MONTH) == few <= 4
