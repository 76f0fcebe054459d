"""Trainyard in an Airflow that is not ours: AWS's pins, a project with its own folders, the wheel and nothing else."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.deployment.airflow_cell import PASSWORD, AirflowCell, resolved
from tests.deployment.installing import build_wheels
from tests.limits import EVENT_LIMIT_S
from tests.stack.small_run import SMALL_RUN, SUCCEEDED
from trainyard.stack import leftovers
from trainyard.stack.identity import USER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sagemaker_engine.testing import RunningEngine

VERSIONS = [pytest.param(each, marks=pytest.mark.slow) for each in ("3.2.1", "3.3.1")]
OWN_FILES = {
    "include/__init__.py": "",
    "include/helpers.py": "GREETING = 'ours'\n",
    "plugins/own_plugin.py": """
from airflow.plugins_manager import AirflowPlugin
class OwnPlugin(AirflowPlugin):
    name = "own"
""",
    "dags/own.py": """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parents[1]))
from airflow.sdk import DAG
from airflow.providers.standard.operators.empty import EmptyOperator
from include.helpers import GREETING
with DAG("own", schedule=None):
    EmptyOperator(task_id=GREETING)
""",
}

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(sys.platform != "linux", reason="processes by mark: Linux only"),
    pytest.mark.skipif(importlib.util.find_spec("uv") is None, reason="not installed: uv"),
]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module", params=VERSIONS)
def cell(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    wheels: dict[str, Path],
    engine: RunningEngine,
) -> Iterator[AirflowCell]:
    cell = AirflowCell(folder=tmp_path_factory.mktemp("cell"), version=request.param)
    for name, text in OWN_FILES.items():
        (cell.project / name).parent.mkdir(parents=True, exist_ok=True)
        (cell.project / name).write_text(text)
    try:
        assert cell.install(wheels["trainyard"]) < 600, "MWAA gives requirements ten minutes"
        cell.run("trainyard", "init", "--dag", "train_end_to_end")
        cell.start(engine.endpoint_url)
        yield cell
    finally:
        cell.stop()
        assert leftovers.marked(cell.home) == []


def run(cell: AirflowCell, dag_id: str, conf: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Run a DAG and return its tasks."""
    run_id = begin(cell, dag_id, conf)
    ended = ("success", "failed")
    cell.wait(lambda: cell.api.run(dag_id, run_id)["state"] in ended, "the run's end")
    return {task["task_id"]: task for task in cell.api.tasks(dag_id, run_id)}


def page_of(cell: AirflowCell, name: str, **params: str) -> dict[str, Any]:
    """Return the data of a page: `run` is a run's training tab, `fleet` the list of all runs."""
    url, login = cell.addresses.ui, {"username": USER, "password": PASSWORD}
    token = requests.post(f"{url}/auth/token", json=login, timeout=EVENT_LIMIT_S).json()
    answer = requests.get(
        f"{url}/trainyard/api/{name}",
        params=params,
        headers={"Authorization": f"Bearer {token['access_token']}"},
        timeout=EVENT_LIMIT_S,
    )
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def states(tasks: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {task_id: task["state"] for task_id, task in tasks.items()}


def begin(cell: AirflowCell, dag_id: str, conf: dict[str, Any]) -> str:
    """Trigger a DAG by REST as a user does; return the run's id."""
    cell.wait(lambda: cell.api.has_dag(dag_id) or cell.api.import_errors(), "parsing of the DAG")
    assert cell.api.import_errors() == []
    cell.api.set_paused(dag_id, paused=False)
    return cell.api.trigger(dag_id, conf=conf)


def test_init_touched_nothing_of_the_project(cell: AirflowCell) -> None:
    files = {name: (cell.project / name).read_text() for name in OWN_FILES}
    cell.run("trainyard", "init")

    assert files == OWN_FILES
    assert {name: (cell.project / name).read_text() for name in OWN_FILES} == OWN_FILES


def test_airflow_lists_provider_and_plugin_beside_the_projects_own(cell: AirflowCell) -> None:
    assert "trainyard" in cell.run("airflow", "providers", "list", "--output", "plain")
    plugins = cell.run("airflow", "plugins", "--output", "plain")
    assert "trainyard" in plugins
    assert "own" in plugins


def test_the_example_of_init_is_green(cell: AirflowCell) -> None:
    tasks = run(cell, "trainyard_example", {"max_steps": 12})

    assert states(tasks) == {"train": "success"}, cell.log()
    run_id = tasks["train"]["dag_run_id"]
    page = page_of(cell, "run", dag_id="trainyard_example", run_id=run_id)
    assert page["progress"]["step"] == 12
    assert page["checkpoints"], "the training tab has what the script reported"
    (row,) = (each for each in page_of(cell, "fleet")["runs"] if each["run_id"] == run_id)
    assert row["cost_usd"] > 0, "the fleet page has the cost of a run without a report"


@pytest.mark.slow
def test_a_shipped_dag_is_green(cell: AirflowCell) -> None:
    tasks = run(cell, "train_end_to_end", SMALL_RUN)

    assert states(tasks) == SUCCEEDED, cell.log()
    assert tasks["train"]["pool_slots"] == 2, "the cluster policy is asked"
    run_id = tasks["train"]["dag_run_id"]
    page = page_of(cell, "run", dag_id="train_end_to_end", run_id=run_id)
    assert page["run"]["verdict"] == "succeeded"
    assert page["progress"]["step"] == SMALL_RUN["max_steps"]


@pytest.mark.slow
def test_a_run_that_is_marked_failed_stops_its_job(cell: AirflowCell, sagemaker: Any) -> None:
    run_id = begin(cell, "trainyard_example", {"max_steps": 1_000_000})

    def log() -> str:
        return str(cell.api.log("trainyard_example", run_id, "train", 1))

    cell.wait(lambda: "step=1 " in log(), "the triggerer's word of the training")
    job = cell.api.xcom("trainyard_example", run_id, "train", "job_name")

    cell.api.fail_run("trainyard_example", run_id)

    def status() -> str:
        return str(sagemaker.describe_training_job(TrainingJobName=job)["TrainingJobStatus"])

    cell.wait(lambda: status() == "Stopped", "the job's end")


@pytest.mark.parametrize(
    ("version", "python", "extras"),
    [
        ("3.3.1", "3.12", ""),
        *(
            pytest.param(version, python, extras, marks=pytest.mark.slow)
            for version in ("3.2.1", "3.3.1")
            for python in ("3.12", "3.13")
            for extras in ("[data,search]", "[train]")
        ),
    ],
)
def test_the_pins_of_mwaa_have_room_for_it_on_newer_pythons(
    wheels: dict[str, Path], version: str, python: str, extras: str
) -> None:
    found = resolved(wheels["trainyard"], extras=extras, version=version, python=python)

    assert f"apache-airflow=={version}\n" in found
    assert ("torch==" in found) == ("train" in extras)
    assert "sagemaker==" not in found
