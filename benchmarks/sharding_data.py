"""Data of the sharding benchmark: typed columns in a few Parquet files, from a fixed seed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NUM_FILES = 4
NUM_FEATURES = 9
_CHUNK_ROWS = 262_144
_COUNTRIES = np.array([f"country-{at:02d}" for at in range(40)])
_DEVICES = np.array(["phone", "desktop", "tablet", "television", "watch"])


def generate(folder: Path, *, rows: int) -> None:
    """Write about 105 bytes per row: numbers of several widths, times, flags, a label, two strings."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(NUM_FILES):
        count = rows * (number + 1) // NUM_FILES - rows * number // NUM_FILES
        path = folder / f"part-{number}.parquet"
        arriving = path.with_suffix(".arriving")
        rng = np.random.default_rng(number)
        with pq.ParquetWriter(arriving, _chunk(rng, 0).schema) as writer:
            for start in range(0, count, _CHUNK_ROWS):
                writer.write_table(_chunk(rng, min(_CHUNK_ROWS, count - start)))
        arriving.replace(path)


def _chunk(rng: np.random.Generator, rows: int) -> pa.Table:
    times = 1_700_000_000_000_000 + np.cumsum(rng.integers(0, 1000, rows))
    return pa.table(
        {
            "user_id": rng.integers(0, 1 << 40, rows),
            "happened_at": pa.array(times, pa.timestamp("us")),
            "price": rng.lognormal(3, 1, rows),
            "amount": rng.normal(size=rows),
            "balance": rng.normal(size=rows),
            "quantity": rng.integers(0, 1000, rows).astype(np.int32),
            **{
                f"feature_{at:02d}": rng.standard_normal(rows, dtype=np.float32)
                for at in range(NUM_FEATURES)
            },
            "is_member": rng.random(rows) < 0.3,
            "label": rng.integers(0, 2, rows).astype(np.int8),
            "country": pa.array(_COUNTRIES[rng.integers(0, len(_COUNTRIES), rows)], pa.string()),
            "device": pa.array(_DEVICES[rng.integers(0, len(_DEVICES), rows)], pa.string()),
        }
    )


if __name__ == "__main__":
    generate(Path(sys.argv[1]), rows=int(sys.argv[2]))
