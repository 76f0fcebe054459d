"""`trainyard init`: copies of the shipped DAGs with a connection of their own, and the conf of a run of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow
from tests.plugins.conftest import TaskSurroundings
from trainyard.errors import SpecError
from trainyard.new_project.__main__ import main, shipped_dags
from trainyard_airflow.tasks.automl.params import FORM
from trainyard_airflow.tasks.automl.specs import run_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

OFFLINE = {("plan_training", "plan"), ("compare_strategies", "plan")}
"""Tasks without a connection."""


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All DAGs that `trainyard init` writes for the connection `aws_team_b`."""
    from airflow.dag_processing.dagbag import DagBag

    project = tmp_path_factory.mktemp("project")
    chosen = [word for name in shipped_dags() for word in ("--dag", name)]
    assert main([str(project), "--aws-conn-id", "aws_team_b", *chosen]) == 0
    dags = project / "dags"
    return DagBag(dags, bundle_path=dags, bundle_name="dags-folder")


def connection_of(task: Any) -> str | None:
    given = task.partial_kwargs if task.is_mapped else vars(task)
    return given.get("aws_conn_id")


def test_every_task_of_every_dag_takes_the_connection(bag: Any) -> None:
    assert bag.import_errors == {}
    assert len(bag.dags) == 10
    for dag_id, dag in bag.dags.items():
        assert dag_id.endswith("_aws_team_b")
        name = dag_id.removesuffix("_aws_team_b")
        for task in dag.tasks:
            if task.task_id != "outcome" and (name, task.task_id) not in OFFLINE:
                assert connection_of(task) == "aws_team_b", (dag_id, task.task_id)


def test_an_automl_run_takes_bucket_and_role_from_its_dags_connection(
    bag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = "arn:aws:iam::111122223333:role/TeamB"
    extra = {
        "region_name": "us-east-1",
        "trainyard": {"bucket": "team-b", "execution_role_arn": role},
    }
    given = {"conn_type": "aws", "login": "x", "password": "y", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_TEAM_B", json.dumps(given))
    dag = bag.dags["autopilot_tabular_aws_team_b"]
    context = {
        "params": {name: param.value for name, param in FORM.params().items()},
        "task": dag.get_task("prepare"),
        "ti": TaskSurroundings(),
    }

    _, paths, found = run_of(context)

    assert (paths.bucket, found) == ("team-b", role)


def test_copies_for_two_connections_are_side_by_side(tmp_path: Path) -> None:
    for given in ([], ["--aws-conn-id", "aws_team_b"]):
        assert main([str(tmp_path), "--dag", "janitor", *given]) == 0

    texts = {path.name: path.read_text() for path in (tmp_path / "dags").glob("janitor*.py")}
    assert 'AWS_CONN_ID = "aws_default"' in texts["janitor.py"]
    assert 'AWS_CONN_ID = "aws_team_b"' in texts["janitor_aws_team_b.py"]
    assert 'dag_id="clean_up_orphans_aws_team_b"' in texts["janitor_aws_team_b.py"]


def test_an_id_that_is_no_connections_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), "--aws-conn-id", 'a"b']) == 2
    assert "--aws-conn-id: got 'a\"b'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_init_names_a_command_that_runs_an_engine_and_the_time_until_airflow_has_the_dag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(tmp_path)])

    text = capsys.readouterr().out
    assert (
        "`make engine` in a clone of Trainyard" in text
    )  # Airflow's own environment has no engine
    assert "300 s ([dag_processor] refresh_interval)" in text
    assert "airflow dags reserialize" in text


@pytest.mark.parametrize(
    ("dag_id", "task_id", "conf", "message"),
    [
        ("trainyard_example", "train", {"max_stps": 5}, "did you mean 'max_steps'"),
        ("clean_up_orphans", "stop_orphans", {"dryrun": True}, "did you mean 'dry_run'"),
        ("trainyard_example", "train", {"zzz": 5}, "allowed: max_steps"),
    ],
)
def test_an_unknown_key_of_the_conf_is_an_error_that_names_the_nearest(
    bag: Any, dag_id: str, task_id: str, conf: dict[str, Any], message: str
) -> None:
    dag = bag.dags[f"{dag_id}_aws_team_b"]
    context = {"dag": dag, "dag_run": dag_run(dag_id, conf)}

    with pytest.raises(SpecError, match="is an unknown key") as raised:
        dag.get_task(task_id)._pre_execute_hook(context)
    assert message in str(raised.value)


def test_a_conf_of_known_params_passes(bag: Any) -> None:
    dag = bag.dags["trainyard_example_aws_team_b"]
    for conf in ({}, {"max_steps": 5}):
        dag.get_task("train")._pre_execute_hook({"dag": dag, "dag_run": dag_run("x", conf)})


def dag_run(dag_id: str, conf: dict[str, Any]) -> Any:
    """Return a run as Airflow hands it to a task."""
    from airflow.sdk.api.datamodels._generated import DagRun, DagRunState, DagRunType

    now = datetime.now(UTC)
    return DagRun(
        logical_date=None,
        data_interval_start=None,
        data_interval_end=None,
        end_date=None,
        partition_key=None,
        dag_id=dag_id,
        run_id="manual",
        run_after=now,
        start_date=now,
        run_type=DagRunType.MANUAL,
        state=DagRunState.RUNNING,
        conf=conf,
        consumed_asset_events=[],
    )
