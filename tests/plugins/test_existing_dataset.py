"""A run reads a data set that an earlier run sharded, or refuses one that it cannot read."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from tests.plugins.test_registration_approval import RegisterSurroundings
from trainyard.errors import SpecError
from trainyard.sharding import Source, shard_dataset
from trainyard.sharding.settings import settings_of_run
from trainyard.specs.data_mixture import MixedSource
from trainyard.specs.run_conf import RunConf
from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects
from trainyard_airflow.tasks.end_to_end.existing_dataset import ExistingDatasetOperator
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.run_state import RunState

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine

MIXTURE = {
    "a": MixedSource(source="s3://bucket/a/", weight=1),
    "b": MixedSource(source="s3://bucket/b/", weight=2),
}


@pytest.fixture
def dataset_uri(aws_connection: RunningEngine, tmp_path: Path) -> str:
    """The address of a data set of text in two shards, one for each rank."""
    source = tmp_path / "source"
    source.mkdir()
    for number in range(300):
        (source / f"{number}.txt").write_text(f"text {number}\n" * 20)
    return shard_dataset(
        Source(uri=str(source)),
        settings_of_run(RunConf(num_shards=2)),
        S3DatasetObjects(aws_connection.client("s3")),
        destination=f"s3://{aws_connection.bucket}/existing-{uuid.uuid4().hex[:8]}",
        work_dir=tmp_path,
    ).uri


def shard(uri: str, **conf: Any) -> dict[str, Any]:
    """Return the result of `shard` in a run with this conf."""
    paths = RunPaths(bucket="bucket", prefix="p", dag_id="d", run_id="r")
    role = "arn:aws:iam::000000000000:role/role"
    state = RunState(conf=RunConf(**conf), paths=paths, role=role, region="us-east-1", plan={})
    surroundings = RegisterSurroundings(task_id="shard")
    surroundings.xcom_push("preflight", state.to_dict())
    operator: Any = ExistingDatasetOperator(dataset_uri=uri)
    return operator.execute(surroundings.context)


def test_an_existing_data_set_is_returned_as_the_runs_own_is(dataset_uri: str) -> None:
    result = shard(f"{dataset_uri}/")

    assert result["dataset_uri"] == dataset_uri
    assert result["fingerprint"].startswith(dataset_uri.rpartition("/")[2])
    assert result["was_reused"]
    assert result["splits"]["train"]["num_shards"] == 2
    assert result["job"] is None


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"instance_count": 3, "global_batch_size": 24}, "cannot be divided evenly"),
        ({"model": "mlp", "target_column": "y"}, "model: cannot read a data set of this kind"),
        ({"data_mixture": MIXTURE}, "data_mixture: cannot be combined with a data set that exists"),
    ],
    ids=["ranks", "model", "mixture"],
)
def test_a_data_set_that_the_run_cannot_read_is_refused(
    dataset_uri: str, conf: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError, match=re.escape(said)):
        shard(dataset_uri, **conf)


def test_an_address_without_an_index_is_refused(aws_connection: RunningEngine) -> None:
    with pytest.raises(SpecError, match="is not the address of a complete data set"):
        shard(f"s3://{aws_connection.bucket}/nothing")
