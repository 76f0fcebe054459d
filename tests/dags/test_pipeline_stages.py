"""Stages of both pipelines that an author replaces, leaves out or adds in a DAG file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.dags.test_train_end_to_end import TINY, result, stored

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunningEngine

pytestmark = [pytest.mark.dag_run, pytest.mark.filterwarnings("ignore")]

FILE = """
from airflow.sdk import BaseOperator, task
from trainyard_airflow.tasks.end_to_end.existing_dataset import ExistingDatasetOperator
from trainyard_airflow.tasks.end_to_end.pipeline import training_pipeline
from trainyard_airflow.tasks.own_script.pipeline import script_pipeline

class Own(BaseOperator):
    def execute(self, context):
        return {"metrics": {"bleu": 31.5}}

@task
def evaluate():
    return {"metrics": {"bleu": 31.5}}

"""
SHIPPED = 'training_pipeline(dag_id="own", {})'
SCRIPT = 'script_pipeline(dag_id="own", source_dir="scripts", entry_point="train.py", {})'
PIPELINES = pytest.mark.parametrize("call", [SHIPPED, SCRIPT], ids=["shipped", "script"])
STATES = ("train", "evaluate", "report", "outcome")


@pytest.fixture
def parsed(tmp_path: Path) -> Callable[[str], Any]:
    """Parse a DAG file with this call of a pipeline, as the dag processor does."""

    def parse(call: str) -> Any:
        from airflow.dag_processing.dagbag import DagBag

        (tmp_path / "own.py").write_text(FILE + call)
        return DagBag(tmp_path, bundle_path=tmp_path, bundle_name="dags-folder")

    return parse


def dag_of(bag: Any) -> Any:
    assert bag.import_errors == {}
    return bag.dags["own"]


@PIPELINES
def test_a_stage_left_out_leaves_a_whole_run(parsed: Any, call: str) -> None:
    dag = dag_of(parsed(call.format("evaluate=False, register=None")))

    assert not {"evaluate", "register"} & set(dag.task_ids)
    assert dag.get_task("outcome").upstream_task_ids == {"train", "report"}
    assert dag.get_task("report").is_teardown


@PIPELINES
def test_without_an_evaluation_the_training_decides_the_registration(
    parsed: Any, call: str
) -> None:
    dag = dag_of(parsed(call.format("evaluate=None")))

    assert dag.get_task("register").upstream_task_ids == {"train"}
    assert not dag.get_task("register").has_own_evaluation


@PIPELINES
def test_an_authors_task_gets_the_place_and_the_arguments_of_the_runs(
    parsed: Any, call: str
) -> None:
    given = (
        'aws_conn_id="aws_team", prepare=lambda: Own(task_id="load"), '
        'evaluate=lambda: Own(task_id="evaluate"), register=lambda: Own(task_id="register")'
    )
    dag = dag_of(parsed(call.format(given)))

    first = "shard" if "training_pipeline" in call else "smoke_test"
    assert dag.get_task("load").upstream_task_ids == {"preflight"}
    assert first in dag.get_task("load").downstream_task_ids
    assert "train" in dag.get_task("evaluate").upstream_task_ids
    assert "evaluate" in dag.get_task("register").upstream_task_ids
    for each in ("load", "evaluate", "register"):
        task = dag.get_task(each)
        assert task.task_type == "Own"
        assert task.retries == 2
        assert task.on_failure_callback


@PIPELINES
def test_a_task_may_be_a_decorated_function(parsed: Any, call: str) -> None:
    dag = dag_of(parsed(call.format("evaluate=evaluate")))

    assert dag.get_task("register").has_own_evaluation


def test_the_shards_may_come_from_an_authors_task(parsed: Any) -> None:
    given = 'shard=lambda: ExistingDatasetOperator(dataset_uri="s3://bucket/datasets/0a1b")'
    dag = dag_of(parsed(SHIPPED.format(given)))

    assert dag.get_task("shard").task_type == "ExistingDatasetOperator"
    assert dag.get_task("train").upstream_task_ids == {"shard", "smoke_test", "tune"}


@PIPELINES
@pytest.mark.parametrize(
    ("given", "where", "said"),
    [
        ('evaluate=Own(task_id="evaluate")', "evaluate", "is not a stage"),
        ('register="no"', "register", "is not a stage"),
        ("prepare=True", "prepare", "is not a stage"),
        ('evaluate=lambda: Own(task_id="measure")', "evaluate", "another task_id; got measure"),
        ("register=lambda: None", "register", "returned no task"),
    ],
)
def test_a_wrong_stage_is_an_import_error(
    parsed: Any, call: str, given: str, where: str, said: str
) -> None:
    (error,) = parsed(call.format(given)).import_errors.values()

    assert f"{where}: " in error
    assert said in error


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (SHIPPED.format('register=False, defaults={"approval": True}'), "approval"),
        (SHIPPED.format('evaluate=False, defaults={"evaluation_place": "training"}'), "evaluation"),
        (SHIPPED.format("shard=False"), "shard: is not a stage"),
        (SCRIPT.format('evaluate=False, evaluation_entry_point="e.py"'), "evaluation_entry_point"),
        (SCRIPT.format('register=None, register_when="a > 1"'), "register_when: has no effect"),
    ],
)
def test_a_default_of_a_stage_that_is_left_out_is_an_import_error(
    parsed: Any, call: str, where: str
) -> None:
    (error,) = parsed(call).import_errors.values()

    assert where in error


@pytest.mark.slow
@pytest.mark.engine
def test_a_run_with_an_own_evaluation_and_no_registration_is_reported(
    database: Any, parsed: Any, aws_connection: RunningEngine, s3: Any
) -> None:
    from airflow.dag_processing.dagbag import sync_bag_to_db

    database("train_end_to_end")
    bag = parsed(SHIPPED.format(f"evaluate=evaluate, register=False, defaults={TINY!r}"))
    dag = dag_of(bag)
    sync_bag_to_db(bag, "dags-folder", None)

    dag_run = dag.test()

    states = {ti.task_id: str(ti.state) for ti in dag_run.get_task_instances()}
    assert {each: states[each] for each in STATES} == dict.fromkeys(STATES, "success")
    reported = result(dag_run, "report")
    assert reported["note"].startswith("Succeeded; bleu 31.5; cost")
    record = json.loads(stored(s3, reported["report_json"]))
    assert record["evaluation"]["metrics"] == {"bleu": 31.5}
    assert record["conf"]["evaluation_place"] == "none"
    jobs = [each["task_id"] for each in record["jobs"]]
    assert jobs == ["train"]
    page = stored(s3, reported["report_html"]).decode()
    assert "this DAG has no registration" in page
