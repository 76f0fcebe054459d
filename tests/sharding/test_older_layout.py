"""Data sets of an older release: readable, never mixed with new ones, and the second sharding is announced."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.sharding.conftest import DESTINATION
from tests.sharding.test_parts import shard_in_parts
from trainer.data.shard_index import ChannelIndex as TrainersIndex
from trainer.data.table import read_layout
from trainer.data.table_rows import TableRows
from trainyard.sharding import ShardIndex, ShardSettings, Source, plan_dataset

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sharding.conftest import Store
    from trainyard.sharding import ShardingResult

pytestmark = pytest.mark.torch


def write(path: Path) -> Path:
    numbers = [None if at % 10 == 3 else at for at in range(300)]
    pq.write_table(
        pa.table({"n": pa.array(numbers, pa.int64()), "y": [at % 2 for at in range(300)]}), path
    )
    return path


def as_older(store: Store, result: ShardingResult, uri: str) -> None:
    """Copy a data set to where the older release put it, with an index as that wrote it."""
    source, target = store._path(result.uri), store._path(uri)
    for path in source.rglob("*.bin"):
        (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
        (target / path.relative_to(source)).write_bytes(path.read_bytes())
    document = json.loads((source / "index" / "index.json").read_text())
    document["version"] = document["settings"]["layout_version"] = 1
    for column in document["schema"]:
        column.pop("validity")
        column.pop("num_infinite")
    (target / "index").mkdir(parents=True)
    (target / "index" / "index.json").write_text(json.dumps(document))


def test_source_sharded_by_an_older_release_is_sharded_again_and_says_so(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    source = store.root / "in" / "t.parquet"
    source.parent.mkdir(parents=True)
    write(source)
    settings = ShardSettings(num_shards=2, max_bad_row_fraction=0.0)
    plan, _ = plan_dataset(
        Source(uri="s3://in/t.parquet"), settings, store, destination=DESTINATION
    )
    first = store.shard("s3://in/t.parquet")
    as_older(store, first, plan.older_uri or "")
    assert "layout 1" not in caplog.text
    store._path(f"{plan.uri}/index/index.json").unlink()

    again = store.shard("s3://in/t.parquet")

    assert plan.older_uri in caplog.text
    assert "layout 1" in caplog.text
    assert again.uri == plan.uri != plan.older_uri
    with store.open(f"{plan.older_uri}/index/index.json") as stream:
        assert ShardIndex.from_json(stream.read()).version == 1


@pytest.mark.parametrize("num_parts", [0, 2], ids=["one-process", "parts"])
@pytest.mark.parametrize("is_older", [False, True], ids=["layout-2", "layout-1"])
def test_trainer_reads_rows_and_missing_values(
    tmp_path: Path, store: Store, num_parts: int, is_older: bool
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    table = pq.read_table(write(tmp_path / "t.parquet"))
    if is_older:  # it stored such a column as floats
        table = table.set_column(0, "n", table.column("n").cast("double"))
    for at in range(3):
        pq.write_table(table.slice(at * 100, 100), folder / f"{at}.parquet")
    wanted = {"num_shards": 2, "target_column": "y", "validation_fraction": 0.0}
    if num_parts:
        result = shard_in_parts(store, folder, num_parts=num_parts, **wanted)
    else:
        result = store.shard(folder, **wanted)
    root = store._path(result.uri)
    if is_older:
        as_older(store, result, "s3://bucket/older")
        root = store._path("s3://bucket/older")

    index = TrainersIndex.load(root / "index")
    found: list[tuple[float, float]] = []
    for split in ("train", "test"):
        names = [shard["file"] for shard in index.split("train")["shards"]]
        files = [root / name for name in names]
        layout = read_layout(index, files, target_column=None, problem="auto")
        rows = TableRows.open(index, split, root / split, layout=layout, verify=True)
        numbers, _, targets = rows[torch.arange(len(rows))]
        found += zip(numbers[:, 0].nan_to_num(-1).tolist(), targets.tolist(), strict=True)
    assert sorted(found) == sorted((-1 if at % 10 == 3 else at, at % 2) for at in range(300))
