"""The DAG files of docs/examples/dags: they parse, their wiring holds, and their settings are runs that would start."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from tests.dags.airflow_home import REPOSITORY
from tests.dags.test_train_end_to_end import result
from tests.plugins.conftest import connection_json
from tests.sagemaker_engine.images.built import need_image
from trainyard.planning.run_plan import plan_run
from trainyard.planning.script_plan import plan_script
from trainyard_airflow.tasks.shared.assets import DATASET_ASSET, MODEL_ASSET

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.dag_run, pytest.mark.filterwarnings("ignore")]

EXAMPLES = REPOSITORY / "docs" / "examples" / "dags"


@pytest.fixture(scope="module")
def dags() -> dict[str, Any]:
    """The DAGs of the examples."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(EXAMPLES, bundle_path=EXAMPLES, bundle_name="dags-folder")
    assert bag.import_errors == {}
    return bag.dags


def test_each_file_has_one_dag(dags: dict[str, Any]) -> None:
    assert len(dags) == len(list(EXAMPLES.glob("*_dag.py")))


def test_the_glue_job_precedes_the_event_that_starts_a_training(dags: dict[str, Any]) -> None:
    dag = dags["glue_features"]
    assert dag.get_task("write_features").downstream_task_ids == {"announce"}
    assert dag.get_task("announce").outlets == [DATASET_ASSET]


def test_redshift_unloads_between_preflight_and_training(dags: dict[str, Any]) -> None:
    unload = dags["redshift_orders"].get_task("unload")
    assert unload.upstream_task_ids == {"preflight"}
    assert unload.downstream_task_ids == {"smoke_test", "train", "watch_rules"}
    plan_script(dags["redshift_orders"].params.dump(), job_attempts=4)


@pytest.mark.parametrize("dag_id", ["fraud_refresh", "recommender_full"])
def test_the_settings_are_a_run_within_its_budget(dags: dict[str, Any], dag_id: str) -> None:
    plan_run(dags[dag_id].params.dump(), job_attempts=4)


def test_the_table_model_is_refreshed_by_the_hour_one_run_at_a_time(dags: dict[str, Any]) -> None:
    assert dags["fraud_refresh"].max_active_runs == 1
    assert dags["fraud_refresh"].catchup is False
    assert dags["recommender_full"].timetable.can_be_scheduled is False


@pytest.fixture
def xgboost(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An engine with the image of XGBoost, and the connection to it."""
    need_image("xgboost")
    engine = request.getfixturevalue("own_engine")
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine))
    return engine


@pytest.mark.slow
@pytest.mark.engine
def test_built_in_xgboost_trains_on_two_instances_and_is_registered(
    database: Callable[[str], Any], dags: dict[str, Any], xgboost: Any
) -> None:
    import numpy as np
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    database("train_own_script")
    sync_bag_to_db(
        DagBag(EXAMPLES, bundle_path=EXAMPLES, bundle_name="dags-folder"), "dags-folder", None
    )
    noise, client = np.random.default_rng(0), xgboost.client("s3")
    for name in ("train/0.csv", "train/1.csv", "validation/0.csv"):
        features = noise.normal(size=(200, 4))
        text = io.StringIO()
        np.savetxt(text, np.column_stack([features.sum(axis=1), features]), delimiter=",")
        client.put_object(Bucket=xgboost.bucket, Key=f"table/{name}", Body=text.getvalue())

    dag_run = dags["xgboost_built_in"].test(run_conf={"data": f"s3://{xgboost.bucket}/table"})

    assert str(dag_run.state) == "success"
    training, registered = result(dag_run, "train"), result(dag_run, "register")
    assert training["instance_count"] == 2
    assert training["final_metrics"]["validation:rmse"] < 2
    assert registered["model_artifact"] == training["model_artifact"]
    assert len(registered["model_artifact_sha256"]) == 64
    assert dags["xgboost_built_in"].get_task("register").outlets == [MODEL_ASSET]
