"""Airflow's OpenLineage provider, installed beside our environment, reads the lineage of the tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.deployment.installing import uv
from trainyard_airflow.operators.register_model import RegisterModelOperator
from trainyard_airflow.operators.shard_dataset import ShardDatasetOperator
from trainyard_airflow.operators.training_job import TrainingJobOperator

if TYPE_CHECKING:
    from pathlib import Path

PROVIDER = (
    "apache-airflow-providers-openlineage==2.20.3",
    "openlineage-python==1.54.0",
    "openlineage-integration-common==1.54.0",
    "openlineage-sql==1.54.0",
)
EXTRACTED = """
import json
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

from airflow.providers.openlineage.extractors.base import DefaultExtractor
from openlineage.client.serde import Serde
from trainyard.sharding.settings import ShardSettings, Source
from trainyard_airflow.jobs.sharding import ShardingSpec
from trainyard_airflow.operators.register_model import RegisterModelOperator
from trainyard_airflow.operators.shard_dataset import ShardDatasetOperator
from trainyard_airflow.operators.training_job import TrainingJobOperator

run_id, source, destination = sys.argv[1:]
ti = SimpleNamespace(
    dag_id="d", run_id=run_id, task_id="t", map_index=-1, try_number=1, context_carrier=None,
    start_date=datetime.now(UTC), xcom_push=lambda **_: None,
)
context = {"ti": ti, "params": {}}


def printed(operator):
    found = DefaultExtractor(operator).extract_on_complete(ti)
    print("LINEAGE", json.dumps(json.loads(Serde.to_json(found))))


channel = {"s3_data": "s3://b/shards/train/"}
spec = {
    "image_uri": "i", "instance_type": "ml.m5.large", "instance_count": 1, "entry_point": None,
    "inputs": {"train": channel, "index": "s3://b/shards/index"},
}
train = TrainingJobOperator(task_id="t", spec=spec)
train.job_run(context)
job = {"arn": "arn:job/1", "status": "Completed", "model_artifact": "s3://b/o/model.tar.gz"}
train.note_ended(ti, {**job, "earlier_attempts": []})
printed(train)

shard = ShardDatasetOperator(
    task_id="t",
    spec=ShardingSpec(
        source=Source(uri=source),
        destination=destination,
        settings=ShardSettings(num_shards=2, validation_fraction=0, test_fraction=0),
    ),
)
type(shard).execute.__wrapped__(shard, context)
printed(shard)

version = {"group": f"g-{run_id}", "model_artifact": "s3://b/o/model.tar.gz", "source": "j"}
register = RegisterModelOperator(task_id="t", version=version)
type(register).execute.__wrapped__(register, context)
printed(register)
"""


@pytest.mark.parametrize(
    "operator", [TrainingJobOperator, ShardDatasetOperator, RegisterModelOperator]
)
def test_the_tasks_have_the_method_that_the_provider_calls(operator: Any) -> None:
    assert callable(operator.get_openlineage_facets_on_complete)


@pytest.mark.slow
@pytest.mark.engine
def test_the_provider_reads_inputs_and_outputs_of_each_task(
    aws_connection: Any, task: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "provider"
    uv("pip", "install", "--quiet", "--no-deps", "--target", str(folder), *PROVIDER)
    bucket = aws_connection.bucket
    (tmp_path / "text.txt").write_text("".join(f"line {each} of a text\n" for each in range(9000)))
    uri = f"s3://{bucket}/{task.run_id}"
    program = "\n".join(("import sys", f"sys.path.append({str(folder)!r})", EXTRACTED))
    done = subprocess.run(
        [sys.executable, "-c", program, task.run_id, str(tmp_path / "text.txt"), uri],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    lines = [each for each in done.stdout.splitlines() if each.startswith("LINEAGE")]
    train, shard, register = (json.loads(each.partition(" ")[2]) for each in lines)
    assert names(train["inputs"]) == [("s3://b", "shards/train"), ("s3://b", "shards/index")]
    assert names(train["outputs"]) == [("s3://b", "o/model.tar.gz")]
    assert train["run_facets"]["externalQuery"]["externalQueryId"] == "arn:job/1"
    assert names(shard["inputs"]) == []  # a local file
    assert shard["outputs"][0]["namespace"] == f"s3://{bucket}"
    assert len(shard["outputs"][0]["facets"]["version"]["datasetVersion"]) > 10
    assert names(register["inputs"]) == names(train["outputs"])
    [(namespace, name)] = names(register["outputs"])
    assert namespace.startswith("arn:aws:sagemaker:")
    assert name == f"model-package/g-{task.run_id}/1"


def names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["namespace"], each["name"]) for each in datasets]
