"""The starts without a person: by an asset's event and by the clock.

That a run goes on to a registered model is shown by tests/resilience/test_kill.py, where REST starts it.
"""

# ruff: noqa: S608 - the statements hold nothing but this file's constants
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stack.live_stack import LiveStack, as_json
from tests.stack.small_run import SMALL_RUN
from trainyard.errors import RejectedRequestError
from trainyard.stack.background import knows_its_dag
from trainyard.stack.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MANUAL = "train_end_to_end"
SCHEDULED = "train_on_schedule"
ASSET = "x-trainyard://dataset"


@pytest.fixture
def scheduled(stack: LiveStack) -> Iterator[LiveStack]:
    """The stack with the scheduled DAG unpaused for one test, and nothing due.

    Else Airflow would begin with the run of last Monday, whole: the clock cannot be given a conf, so the row of a run
    that it makes gets one here.
    """
    stack.database(
        "CREATE TRIGGER IF NOT EXISTS small_scheduled_runs AFTER INSERT ON dag_run "
        "WHEN NEW.run_type = 'scheduled' "
        f"BEGIN UPDATE dag_run SET conf = '{as_json(SMALL_RUN)}' WHERE id = NEW.id; END"
    )
    due(stack, "2126-01-07 03:00:00.000000")
    stack.api.set_paused(SCHEDULED, paused=False)
    yield stack
    stack.api.set_paused(SCHEDULED, paused=True)


def due(stack: LiveStack, moment: str) -> None:
    """Let the scheduled DAG's next run be due at a moment."""
    stack.database(
        f"UPDATE dag SET next_dagrun = '{moment}', next_dagrun_create_after = '{moment}', "
        f"next_dagrun_data_interval_start = '{moment}', next_dagrun_data_interval_end = '{moment}' "
        f"WHERE dag_id = '{SCHEDULED}'"
    )


def run_of_type(stack: LiveStack, run_type: str) -> str:
    """Wait for a run of that type and return its id."""
    query = f"SELECT run_id FROM dag_run WHERE dag_id = '{SCHEDULED}' AND run_type = '{run_type}'"
    return str(stack.wait(lambda: stack.database(query), f"a run of type {run_type}")[0][0])


def test_an_assets_event_starts_a_run_on_the_data_it_names(scheduled: LiveStack) -> None:
    assets = scheduled.api._get("/assets?limit=100")["assets"]
    asset_id = next(each["id"] for each in assets if each["uri"].rstrip("/") == ASSET)
    event = {"asset_id": asset_id, "extra": SMALL_RUN}
    scheduled.api._call("POST", "/assets/events", body=event)

    run_id = run_of_type(scheduled, "asset_triggered")
    scheduled.passes_preflight(SCHEDULED, run_id)
    conf = scheduled.api.xcom(SCHEDULED, run_id, "preflight", "return_value")["conf"]
    assert {name: conf[name] for name in SMALL_RUN} == SMALL_RUN


def test_the_schedule_starts_a_run_when_its_time_comes(scheduled: LiveStack) -> None:
    due(scheduled, "2026-01-05 03:00:00.000000")
    scheduled.passes_preflight(SCHEDULED, run_of_type(scheduled, "scheduled"))


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        pytest.param({"max_steps": "many"}, "max_steps", id="wrong type"),
        pytest.param({"max_steps": 0}, "max_steps", id="out of range"),
        pytest.param({"strategy": "magic"}, "strategy", id="not one of the choices"),
    ],
)
def test_rest_refuses_a_conf_that_does_not_fit(
    stack: LiveStack, conf: dict[str, object], message: str
) -> None:
    before = len(stack.api.unfinished_runs(MANUAL))
    with pytest.raises(RejectedRequestError, match=message) as caught:
        stack.api.trigger(MANUAL, conf=conf)
    assert caught.value.code == "400"
    assert len(stack.api.unfinished_runs(MANUAL)) == before


def test_first_request_of_the_execution_api_is_not_a_tasks(stack: LiveStack) -> None:
    """The API blocks for seconds while it creates its routes; a task on a busy machine would give up meanwhile."""
    lines = (stack.home.logs / "execution-api.log").read_text().splitlines()
    first = next(line for line in lines if "request finished" in line)
    assert "path=/execution/health" in first
    assert "status_code=200" in first


class EmptyAirflow:
    """API of an Airflow that has parsed no DAG."""

    def has_dag(self, _dag_id: str) -> bool:
        return False

    def import_errors(self) -> list[dict[str, str]]:
        return []


def test_up_waits_for_train_end_to_end_only_if_the_project_has_it(tmp_path: Path) -> None:
    home, api = Home(path=tmp_path / ".trainyard", project=tmp_path), EmptyAirflow()
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "train_my_model.py").touch()
    is_up_without = knows_its_dag(home, api)
    (tmp_path / "dags" / "train_end_to_end.py").touch()

    assert is_up_without
    assert not knows_its_dag(home, api)


def test_up_prints_where_the_ui_is_and_how_to_log_in(stack: LiveStack) -> None:
    assert stack.url in stack.up_output
    assert f"admin / {stack.password}" in stack.up_output
    assert f"export AWS_ENDPOINT_URL={stack.engine}" in stack.up_output
