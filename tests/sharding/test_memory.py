"""Memory stays bounded: a table several times larger than the allowance."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainyard.sharding import DataFormat, LocalObjects, ShardSettings
from trainyard.sharding.parquet_rows import BATCH_BYTES
from trainyard.sharding.quarantine import BadRows
from trainyard.sharding.reading import Reading
from trainyard.sharding.source_files import SourceFile

ROWS_A_GROUP = 250_000
NUM_GROUPS = 12
NUM_COLUMNS = 16
PEAK_LIMIT_BYTES = 275_000_000

SCRIPT = """
import json, resource, sys
from pathlib import Path
from trainyard.sharding import LocalObjects, ShardSettings, Source, shard_dataset
folder = Path(sys.argv[1])
result = shard_dataset(
    Source(uri=str(folder / "t.parquet")),
    ShardSettings(**json.loads(sys.argv[2])),
    LocalObjects(folder / "store"),
    destination="s3://bucket/x",
    work_dir=folder,
)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"rows": result.index.num_rows, "peak": peak}))
"""


NUM_TEXTS, TEXT_BYTES = 300, 300_000
TEXT_PEAK_LIMIT_BYTES = 450_000_000
LIST_PEAK_LIMIT_BYTES = 350_000_000


@pytest.mark.parametrize(
    "distinct",
    [
        pytest.param(1, id="one-text"),
        pytest.param(NUM_TEXTS, id="own-texts", marks=pytest.mark.slow),
    ],
)
def test_large_texts_are_sharded_in_little_memory(tmp_path: Path, distinct: int) -> None:
    texts = [f"{at % distinct} " + "word " * (TEXT_BYTES // 5) for at in range(NUM_TEXTS)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "t.parquet", compression="lz4")
    found = peak_of(tmp_path, text_column="text", validation_fraction=0, test_fraction=0)
    assert found["rows"] == NUM_TEXTS
    assert found["peak"] < TEXT_PEAK_LIMIT_BYTES


def test_large_table_is_sharded_in_little_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"f{at}" for at in range(NUM_COLUMNS)]
    group = pa.table({name: rng.random(ROWS_A_GROUP) for name in names})
    with pq.ParquetWriter(tmp_path / "t.parquet", group.schema, compression="none") as writer:
        for _ in range(NUM_GROUPS):
            writer.write_table(group)
    assert group.nbytes * NUM_GROUPS > 1.3 * PEAK_LIMIT_BYTES

    found = peak_of(tmp_path)
    assert found["rows"] == ROWS_A_GROUP * NUM_GROUPS
    assert found["peak"] < PEAK_LIMIT_BYTES


def reading_of(file: SourceFile, **settings: Any) -> Reading:
    """Return the reading of a single Parquet file."""
    folder = Path(file.uri).parent
    return Reading(
        data_format=DataFormat.PARQUET,
        files=[file],
        objects=LocalObjects(folder),
        settings=ShardSettings(**settings),
        folder=folder,
        bad_rows=BadRows(0.0),
    )


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int64())], ids=str)
def test_lists_are_read_in_batches_of_bounded_bytes(tmp_path: Path, kind: pa.DataType) -> None:
    num_rows, length = 20_000, 200
    ids = np.random.default_rng(0).integers(0, 500, num_rows * length)
    values = pa.array(ids).cast(kind.value_type)
    ends = pa.array(np.arange(0, len(ids) + 1, length))
    width = "large_list" if pa.types.is_large_list(kind) else "list"
    lists = {"list": pa.ListArray, "large_list": pa.LargeListArray}[width].from_arrays(
        ends.cast(pa.int64() if width == "large_list" else pa.int32()), values
    )
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a.b": range(num_rows), "ids": lists}), path, row_group_size=num_rows)
    file = SourceFile(name="t.parquet", uri=str(path), size=path.stat().st_size)

    table = reading_of(file, text_column="ids").table()
    batches = [batch.batch for _, batch in table.batches()]

    assert sum(batch.num_rows for batch in batches) == num_rows
    assert max(batch.nbytes for batch in batches) <= 1.1 * BATCH_BYTES


def test_strings_that_share_a_prefix_are_read_in_batches_of_bounded_bytes(tmp_path: Path) -> None:
    num_rows, path = 4000, tmp_path / "t.parquet"
    texts = pa.array(["x" * 8000 + str(at % 5) for at in range(num_rows)])
    pq.write_table(
        pa.table({"s": texts}),
        path,
        use_dictionary=False,
        column_encoding={"s": "DELTA_BYTE_ARRAY"},
    )
    assert path.stat().st_size * 100 < texts.nbytes
    file = SourceFile(name="t.parquet", uri=str(path), size=path.stat().st_size)

    table = reading_of(file).table()
    sizes = [(batch.batch.num_rows, batch.batch.nbytes) for _, batch in table.batches()]

    assert sum(rows for rows, _ in sizes) == num_rows
    assert max(size for _, size in sizes) <= 1.1 * BATCH_BYTES


@pytest.mark.slow
def test_token_lists_are_sharded_in_little_memory(tmp_path: Path) -> None:
    num_rows, length = 48_000, 1024
    ids = np.random.default_rng(0).integers(0, 500, num_rows * length).astype(np.int32)
    ends = pa.array(np.arange(0, len(ids) + 1, length, dtype=np.int32))
    lists = pa.ListArray.from_arrays(ends, pa.array(ids))
    pq.write_table(pa.table({"ids": lists}), tmp_path / "t.parquet", row_group_size=num_rows)

    found = peak_of(tmp_path, text_column="ids", vocab_size=512, eos_token_id=511)

    assert found["rows"] == num_rows
    assert found["peak"] < LIST_PEAK_LIMIT_BYTES


def peak_of(folder: Path, **settings: Any) -> dict[str, int]:
    """Return the rows and the peak resident bytes of a process that shards `t.parquet`."""
    done = subprocess.run(
        # Through a small process of its own, since a child's peak counts its parent's size at birth.
        [
            *("/bin/sh", "-c", '"$0" -c "$1" "$2" "$3"', sys.executable, SCRIPT, str(folder)),
            json.dumps({"num_shards": 8, **settings}),
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)
