"""The AutoML pipeline against a real engine, by `dag.test()`, and what its conf and its report say."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.dags.test_train_end_to_end import result, stored
from trainyard.specs.automl_conf import AutoMLConf
from trainyard_airflow.tasks.automl.params import FORM

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = pytest.mark.filterwarnings("ignore")

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
SMALL = {
    "dataset": "breast_cancer",
    "image_uri": IMAGE,
    "mode": "ENSEMBLING",
    "algorithms": ["linear-learner"],
    "max_candidates": 1,
    "budget_usd": 3.0,
    "intended_uses": "Only for tests.",
}


@pytest.mark.dag_run
@pytest.mark.engine
@pytest.mark.slow
def test_run_searches_evaluates_registers_and_reports(
    database: Any, aws_connection: RunningEngine, s3: Any, sagemaker: Any
) -> None:
    dag_run = database("autopilot_tabular").test(run_conf=SMALL)
    states = {ti.task_id: str(ti.state) for ti in dag_run.get_task_instances()}

    assert set(states.values()) == {"success"}, states
    told = result(dag_run, "report")
    record = json.loads(stored(s3, told["report_json"]))
    assert (record["status"], record["metric"]) == ("succeeded", "F1")
    assert record["facts"]["num_rows"] == {"train": 512, "test": 57}
    assert record["evaluation"]["num_rows"] == 57
    assert record["evaluation"]["metrics"]["Accuracy"] > 0.9
    assert record["beats_baseline"] is told["beats_baseline"] is True
    assert len({each["name"] for each in record["importance"]}) == 30
    assert told["unsettled"] == []
    entries = {each["kind"]: each for each in record["ledger"]["entries"]}
    assert set(entries) == {"processing", "automl"}
    assert {each["status"] for each in entries.values()} == {"Completed"}
    assert record["search"]["cost_usd"] < SMALL["budget_usd"]

    page = stored(s3, told["report_html"]).decode()
    for text in (record["search"]["best"]["name"], "Leaderboard", "Importance of the columns"):
        assert text in page
    package = sagemaker.describe_model_package(
        ModelPackageName=result(dag_run, "register")["model_package_arn"]
    )
    (container,) = package["InferenceSpecification"]["Containers"]
    assert container["ModelDataUrl"] == record["search"]["model_artifact"]
    lineage = package["CustomerMetadataProperties"]
    assert lineage["candidate"] == record["search"]["best"]["name"]
    card = json.loads(package["ModelCard"]["ModelCardContent"])
    assert card["intended_uses"]["intended_uses"] == "Only for tests."
    (evaluation,) = card["evaluation_details"]
    (group,) = evaluation["metric_groups"]
    metrics = {each["name"]: each["value"] for each in group["metric_data"]}
    assert metrics["Accuracy"] == record["evaluation"]["metrics"]["Accuracy"]


def test_params_are_the_fields_of_the_conf() -> None:
    params = FORM.params()
    assert set(params) == {each.name for each in fields(AutoMLConf)}
    values = {name: param.value for name, param in params.items()}
    assert AutoMLConf.from_mapping(values) == AutoMLConf()
    for name, param in params.items():
        assert param.schema["title"], name
        param.resolve()


def test_job_tasks_wait_deferred_with_retries(bag: Any) -> None:
    for task_id in ("prepare", "search", "evaluate"):
        task = bag.dags["autopilot_tabular"].get_task(task_id)
        assert task.deferrable
        assert task.retries == 3
        assert task.retry_delay == timedelta(seconds=10)
