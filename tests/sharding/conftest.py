"""A store on disk, and a reader of shards that knows nothing but the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from trainyard.sharding import LocalObjects, ShardIndex, ShardingResult, ShardSettings, Source
from trainyard.sharding.run import shard_dataset

if TYPE_CHECKING:
    from pathlib import Path

DESTINATION = "s3://bucket/trainyard"


class Store(LocalObjects):
    """The store of one test, and short ways to shard into it and read back."""

    __slots__ = ()

    def shard(
        self, source: Path | str, data_format: str = "auto", **settings: Any
    ) -> ShardingResult:
        wanted = {"num_shards": 2, "max_bad_row_fraction": 0.0, **settings}
        return shard_dataset(
            Source(uri=str(source), data_format=data_format),
            ShardSettings(**wanted),
            self,
            destination=DESTINATION,
        )

    def index(self, result: ShardingResult) -> ShardIndex:
        with self.open(f"{result.uri}/index/index.json") as stream:
            return ShardIndex.from_json(stream.read())

    def buffers(self, result: ShardingResult, split: str) -> list[dict[str, np.ndarray]]:
        """Return each shard's buffers by name."""
        found = []
        for shard in self.index(result).splits[split].shards:
            content = self._path(f"{result.uri}/{shard.file}").read_bytes()
            assert len(content) == shard.bytes
            found.append(
                {
                    place.name: np.frombuffer(
                        content[place.offset : place.offset + place.bytes], dtype=place.dtype
                    )
                    for place in shard.columns
                }
            )
            assert all(place.offset % 64 == 0 for place in shard.columns)
        return found

    def texts(self, result: ShardingResult, split: str | None = None) -> list[bytes]:
        """Return the rows of a byte-tokenized data set, decoded."""
        splits = [split] if split else list(self.index(result).splits)
        rows = []
        for name in splits:
            for shard in self.buffers(result, name):
                start = 0
                for end in shard["row_ends"].tolist():
                    row = shard["tokens"][start:end]
                    assert row[-1] == 256
                    rows.append(row[:-1].astype(np.uint8).tobytes())
                    start = end
        return rows

    def table(self, result: ShardingResult, split: str | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a table, categories as their strings, missing values as None."""
        index = self.index(result)
        rows: list[tuple[Any, ...]] = []
        for name in [split] if split else list(index.splits):
            for shard in self.buffers(result, name):
                num_rows = len(next(iter(shard.values())))
                columns = [
                    _values(
                        shard[column.name],
                        column.categories,
                        shard.get(column.validity) if column.validity else None,
                    )
                    if column.name in shard
                    else [None] * num_rows
                    for column in index.schema or ()
                ]
                rows += list(zip(*columns, strict=True))
        return rows


def _values(
    array: np.ndarray, categories: tuple[str, ...] | None, present: np.ndarray | None
) -> list[Any]:
    if present is not None:
        pairs = zip(array.tolist(), present.tolist(), strict=True)
        return [value if there else None for value, there in pairs]
    if categories is not None:
        return [None if code < 0 else categories[code] for code in array.tolist()]
    return [None if value != value else value for value in array.tolist()]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")
