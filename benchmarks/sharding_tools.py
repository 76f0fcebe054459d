"""Run of one tool in the sharding benchmark, in a separate process: `sharding_tools.py TOOL DATA OUT SHARDS`.

It prints one JSON line: the seconds of the work without imports, the processor seconds, the rows, the files.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import checkout  # noqa: F401  # finds the imports below

Work = Callable[[], int]
"""Function that does the work and returns the number of written rows."""

MDS_ROWS = 200_000


def ours(data: Path, out: Path, shards: int, *, checksums: bool = True) -> Work:
    """Shard with Trainyard: splits by row hash, statistics, checksums, index; no cached digests, as in a first run."""
    os.environ["XDG_CACHE_HOME"] = str(out / "cache")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does
    # What a caller has loaded already, and what the peers are spared too.
    import trainyard.sharding.column_pass  # noqa: F401
    import trainyard.sharding.parquet_rows  # noqa: F401
    from trainyard.sharding import LocalObjects, ShardSettings, Source, shard_dataset

    def work() -> int:
        result = shard_dataset(
            Source(uri=str(data)),
            ShardSettings(num_shards=shards, target_column="label", checksums=checksums),
            LocalObjects(out),
            destination="s3://bucket/benchmark",
            work_dir=out / "work",
        )
        return result.index.num_rows

    return work


def arrow_ipc(data: Path, out: Path, shards: int) -> Work:
    """Read the whole table and write slices of it as IPC files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def work() -> int:
        table = pa.concat_tables(pq.read_table(path) for path in sorted(data.glob("*.parquet")))
        for at, (first, last) in enumerate(_ranges(table.num_rows, shards)):
            part = table.slice(first, last - first)
            path = str(out / f"{at}.arrow")
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, part.schema) as writer:
                writer.write_table(part)
        return table.num_rows

    return work


def arrow_ipc_lz4(data: Path, out: Path, shards: int) -> Work:
    """Read the whole table and write slices of it as IPC files compressed with lz4."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def work() -> int:
        table = pa.concat_tables(pq.read_table(path) for path in sorted(data.glob("*.parquet")))
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        for at, (first, last) in enumerate(_ranges(table.num_rows, shards)):
            part = table.slice(first, last - first)
            path = str(out / f"{at}.arrow")
            with (
                pa.OSFile(path, "wb") as sink,
                pa.ipc.new_file(sink, part.schema, options=options) as writer,
            ):
                writer.write_table(part)
        return table.num_rows

    return work


def arrow_ipc_streamed(data: Path, out: Path, shards: int) -> Work:
    """Copy batch after batch into IPC files, with Trainyard's batches and without any other work."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def batches() -> Iterator[pa.RecordBatch]:
        for path in sorted(data.glob("*.parquet")):
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 19) as opened:
                yield from opened.iter_batches(32_768)

    def work() -> int:
        total = sum(pq.read_metadata(path).num_rows for path in data.glob("*.parquet"))
        schema = pq.read_schema(next(iter(data.glob("*.parquet"))))
        per_shard, at, left, rows = -(-total // shards), 0, 0, 0
        writer = None
        for batch in batches():
            start = 0
            while start < batch.num_rows:
                if writer is None or left == 0:
                    if writer is not None:
                        writer.close()
                    writer = pa.ipc.new_file(str(out / f"{at}.arrow"), schema)
                    at, left = at + 1, per_shard
                part = batch.slice(start, left)
                writer.write_batch(part)
                start, left, rows = (
                    start + part.num_rows,
                    left - part.num_rows,
                    rows + part.num_rows,
                )
        if writer is not None:
            writer.close()
        return rows

    return work


def arrow_parquet(data: Path, out: Path, shards: int) -> Work:
    """Write a data set of Parquet files of equal row counts."""
    import pyarrow.dataset as ds

    def work() -> int:
        dataset = ds.dataset(data)
        rows = dataset.count_rows()
        per_file = -(-rows // shards)
        ds.write_dataset(
            dataset,
            out,
            format="parquet",
            max_rows_per_file=per_file,
            max_rows_per_group=per_file,
            existing_data_behavior="overwrite_or_ignore",
        )
        return rows

    return work


def polars_ipc(data: Path, out: Path, shards: int) -> Work:
    """Write IPC files of equal row counts with polars' sink."""
    import polars as pl

    def work() -> int:
        frame = pl.scan_parquet(data / "*.parquet")
        rows = int(frame.select(pl.len()).collect().item())
        frame.sink_ipc(
            pl.PartitionBy(
                out, max_rows_per_file=-(-rows // shards), approximate_bytes_per_file=None
            )
        )
        return rows

    return work


def polars_parquet(data: Path, out: Path, shards: int) -> Work:
    """Write Parquet files of equal row counts with polars' sink."""
    import polars as pl

    def work() -> int:
        frame = pl.scan_parquet(data / "*.parquet")
        rows = int(frame.select(pl.len()).collect().item())
        frame.sink_parquet(
            pl.PartitionBy(
                out, max_rows_per_file=-(-rows // shards), approximate_bytes_per_file=None
            )
        )
        return rows

    return work


def duckdb_copy(data: Path, out: Path, shards: int) -> Work:
    """Write by COPY, partitioned by a shard number, which gives files of equal size."""
    import duckdb

    def work() -> int:
        source = f"read_parquet('{data}/*.parquet', file_row_number = true)"
        query = (
            f"SELECT * EXCLUDE file_row_number, file_row_number % {shards} AS shard FROM {source}"  # noqa: S608
        )
        duckdb.sql(f"COPY ({query}) TO '{out}' (FORMAT parquet, PARTITION_BY (shard), OVERWRITE)")
        return int(duckdb.sql(f"SELECT count(*) FROM {source}").fetchall()[0][0])  # noqa: S608

    return work


def duckdb_row_groups(data: Path, out: Path, shards: int) -> Work:
    """Write by COPY with a number of row groups per file, which is faster but gives uneven files."""
    import duckdb

    def work() -> int:
        source = f"read_parquet('{data}/*.parquet')"
        rows = int(duckdb.sql(f"SELECT count(*) FROM {source}").fetchall()[0][0])  # noqa: S608
        group = 122_880
        groups = max(1, round(rows / shards / group))
        options = f"FORMAT parquet, ROW_GROUP_SIZE {group}, ROW_GROUPS_PER_FILE {groups}"
        duckdb.sql("SET preserve_insertion_order = false")
        duckdb.sql(f"COPY (SELECT * FROM {source}) TO '{out}' ({options}, OVERWRITE)")  # noqa: S608
        return rows

    return work


def pandas_loop(data: Path, out: Path, shards: int) -> Work:
    """Read the whole table and write slices of it as Parquet files, one after the other."""
    import pandas as pd

    def work() -> int:
        frame = pd.read_parquet(data)
        for at, (first, last) in enumerate(_ranges(len(frame), shards)):
            frame.iloc[first:last].to_parquet(out / f"{at}.parquet", index=False)
        return len(frame)

    return work


def mds_writer(data: Path, out: Path, shards: int) -> Work:
    """Write mosaicml-streaming samples one by one; only the first rows, because it is slow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer_class = _mds_writer_class()
    path = min(data.glob("*.parquet"))
    kinds = {
        pa.int64(): "int64",
        pa.int32(): "int32",
        pa.int8(): "int8",
        pa.float64(): "float64",
        pa.float32(): "float32",
        pa.string(): "str",
        pa.bool_(): "uint8",
    }
    columns = {field.name: kinds.get(field.type, "int64") for field in pq.read_schema(path)}

    def work() -> int:
        import numpy as np

        rows = 0
        size_limit = max(1 << 16, MDS_ROWS * 110 // shards)
        with writer_class(out=str(out), columns=columns, size_limit=size_limit) as writer:
            for batch in pq.ParquetFile(path).iter_batches(8_192):
                named = {
                    name: _mds_values(np, batch.column(name), kind)
                    for name, kind in columns.items()
                }
                for at in range(batch.num_rows):
                    writer.write({name: values[at] for name, values in named.items()})
                    rows += 1
                    if rows == MDS_ROWS:
                        return rows
        return rows

    return work


def _mds_values(np: Any, column: Any, kind: str) -> Any:
    if kind == "str":
        return column.to_pylist()
    return column.to_numpy(zero_copy_only=False).astype(np.dtype(kind))


def _mds_writer_class() -> Any:
    """Return mosaicml-streaming's writer without its `__init__` files, which import cloud clients."""  # noqa: DOC501
    spec = importlib.util.find_spec("streaming")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("streaming")
    root = spec.submodule_search_locations[0]
    for name, path in (("streaming", root), ("streaming.base", f"{root}/base")):
        package = types.ModuleType(name)
        package.__path__ = [path]
        sys.modules[name] = package
    return importlib.import_module("streaming.base.format.mds.writer").MDSWriter


def _ranges(rows: int, shards: int) -> Iterator[tuple[int, int]]:
    for at in range(shards):
        yield rows * at // shards, rows * (at + 1) // shards


TOOLS: dict[str, Callable[[Path, Path, int], Work]] = {
    "trainyard": ours,
    "trainyard-unchecked": partial(ours, checksums=False),
    "arrow-ipc": arrow_ipc,
    "arrow-ipc-lz4": arrow_ipc_lz4,
    "arrow-ipc-streamed": arrow_ipc_streamed,
    "arrow-parquet": arrow_parquet,
    "polars-ipc": polars_ipc,
    "polars-parquet": polars_parquet,
    "duckdb-copy": duckdb_copy,
    "duckdb-row-groups": duckdb_row_groups,
    "pandas-loop": pandas_loop,
    "mosaicml-mds": mds_writer,
}


def main(tool: str, data: str, out: str, shards: str) -> None:
    """Run one tool and print its figures."""
    folder = Path(out)
    folder.mkdir(parents=True)
    work = TOOLS[tool](Path(data), folder, int(shards))
    started, used = time.perf_counter(), time.process_time()
    rows = work()
    seconds, processor = time.perf_counter() - started, time.process_time() - used
    written = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".json"]
    sizes = [path.stat().st_size for path in written]
    report = {
        "rows": rows,
        "seconds": seconds,
        "processor_seconds": processor,
        "files": len(sizes),
        "bytes": sum(sizes),
    }
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
    os._exit(0)  # engines with threads of their own take their time to leave


if __name__ == "__main__":
    main(*sys.argv[1:])
