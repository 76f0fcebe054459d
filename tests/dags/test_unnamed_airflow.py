"""A task of a real Airflow claims its bucket by an Airflow variable, which all its later tasks read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.dags.test_train_end_to_end import result
from tests.plugins.conftest import connection_json
from trainyard.sagemaker_api.names import UNNAMED_MARKER

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunningEngine

pytestmark = [pytest.mark.dag_run, pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

BUCKET = "unnamed-airflow"
FILE = f"""
from airflow.sdk import Variable, dag, task

@dag
def claims():
    @task
    def claim():
        from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
        from trainyard_airflow.hooks.bucket_claim import claim_bucket, variable_of

        claim_bucket(AwsClients(ConnectionArguments()), "{BUCKET}")
        return {{"airflow": Variable.get(variable_of("{BUCKET}"))}}

    claim() >> claim.override(task_id="again")()

claims()
"""


@pytest.mark.slow
def test_a_dag_claims_its_bucket_once(
    database: Any, engine: RunningEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    s3 = engine.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine))
    (tmp_path / "claims.py").write_text(FILE)
    bag = DagBag(tmp_path, bundle_path=tmp_path, bundle_name="dags-folder")
    sync_bag_to_db(bag, "dags-folder", None)

    dag_run = bag.dags["claims"].test()

    assert dag_run.state == "success"
    marker = json.loads(s3.get_object(Bucket=BUCKET, Key=UNNAMED_MARKER)["Body"].read())
    assert [result(dag_run, each) for each in ("claim", "again")] == [marker] * 2
