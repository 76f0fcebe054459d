"""Memory stays bounded: a table several times larger than the allowance."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS_A_GROUP = 250_000
NUM_GROUPS = 12
NUM_COLUMNS = 16
PEAK_LIMIT_BYTES = 275_000_000

SCRIPT = """
import json, resource, sys
from pathlib import Path
from include.sharding import LocalObjects, ShardSettings, Source, shard_dataset
folder = Path(sys.argv[1])
result = shard_dataset(
    Source(uri=str(folder / "t.parquet")),
    ShardSettings(num_shards=8),
    LocalObjects(folder / "store"),
    destination="s3://bucket/x",
    work_dir=folder,
)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"rows": result.index.num_rows, "peak": peak}))
"""


def test_large_table_is_sharded_in_little_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"f{at}" for at in range(NUM_COLUMNS)]
    group = pa.table({name: rng.random(ROWS_A_GROUP) for name in names})
    with pq.ParquetWriter(tmp_path / "t.parquet", group.schema, compression="none") as writer:
        for _ in range(NUM_GROUPS):
            writer.write_table(group)
    assert group.nbytes * NUM_GROUPS > 1.3 * PEAK_LIMIT_BYTES

    done = subprocess.run(
        # Through a small process of its own, since a child's peak counts its parent's size at birth.
        ["/bin/sh", "-c", '"$0" -c "$1" "$2"', sys.executable, SCRIPT, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["rows"] == ROWS_A_GROUP * NUM_GROUPS
    assert found["peak"] < PEAK_LIMIT_BYTES
