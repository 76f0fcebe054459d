"""`training_pipeline` in a DAG file of one's own: another connection, other defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.dags.test_train_end_to_end import TINY
from tests.plugins.conftest import connection_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunningEngine
    from tests.engine_access import EngineAccess

pytestmark = [pytest.mark.dag_run, pytest.mark.filterwarnings("ignore")]

FILE = """
from trainyard_airflow.tasks.end_to_end.pipeline import training_pipeline

training_pipeline(
    dag_id="team_b",
    aws_conn_id="aws_team_b",
    schedule="0 3 * * 1",
    defaults={defaults!r},
)
"""


@pytest.fixture
def parsed(tmp_path: Path) -> Callable[[dict[str, Any]], Any]:
    """Parse a DAG file whose pipeline has these defaults, as the dag processor does."""

    def parse(defaults: dict[str, Any]) -> Any:
        from airflow.dag_processing.dagbag import DagBag

        (tmp_path / "team_b.py").write_text(FILE.format(defaults=defaults))
        return DagBag(tmp_path, bundle_path=tmp_path, bundle_name="dags-folder")

    return parse


def test_every_task_takes_the_connection_and_the_form_the_defaults(parsed: Any) -> None:
    bag = parsed({"source": "s3://team-b/text/", "budget_usd": 40})

    assert bag.import_errors == {}
    dag = bag.dags["team_b"]
    assert dag.fileloc.endswith("team_b.py")
    connections = {task.task_id: getattr(task, "aws_conn_id", None) for task in dag.tasks}
    assert connections.pop("outcome") is None
    assert set(connections.values()) == {"aws_team_b"}
    assert dag.params["source"] == "s3://team-b/text/"
    assert dag.params["budget_usd"] == 40
    assert "trainyard" in dag.tags, "the pages show runs of such DAGs"


def test_wrong_defaults_are_an_import_error_with_all_of_them(parsed: Any) -> None:
    bag = parsed({"max_step": 3, "instance_type": "p5", "learning_rate": "fast"})

    (error,) = bag.import_errors.values()
    assert "training_pipeline team_b: 3 problem(s)" in error
    assert "defaults.max_step: is not a field of the run" in error
    assert "max_steps" in error
    assert "instance_type" in error
    assert "learning_rate" in error


@pytest.mark.slow
@pytest.mark.engine
def test_a_run_needs_no_other_connection(
    database: Any,
    parsed: Any,
    engine: RunningEngine,
    access: EngineAccess,  # the policies hold
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_AWS_TEAM_B", connection_json(engine))
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", '{"conn_type": "aws", "extra": {}}')
    dag = parsed(TINY).dags["team_b"]
    from airflow.dag_processing.dagbag import sync_bag_to_db

    database("train_end_to_end")
    sync_bag_to_db(parsed(TINY), "dags-folder", None)

    dag_run = dag.test()

    assert str(dag_run.state) == "success"
