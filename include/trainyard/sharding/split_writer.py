"""Writers of one split, which append rows to shard files.

A writer closes a shard file when the file has its planned number of tokens, or of rows of a table. This number is
called the weight of a shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trainyard.sharding.shard_file import ColumnShardFile, LocalShard, TokenShardFile

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

ShardFile = TypeVar("ShardFile", TokenShardFile, ColumnShardFile)
NextWeight = Callable[[int, int], int]
"""Planned weight of a shard (tokens, or rows of a table) from its number and the weight written before it."""
Finished = Callable[[LocalShard], None]


class _SplitWriter(Generic[ShardFile]):
    """Writer of one split.

    It has the shard that is being written, the number of the split's finished shards, and the weight of all
    rows written so far.
    """

    def __init__(
        self, split: str, folder: Path, next_weight: NextWeight, finished: Finished
    ) -> None:
        self._split, self._folder = split, folder
        self._next_weight, self._finished = next_weight, finished
        self._shard: ShardFile | None = None
        self.num_shards = 0
        self.weight = 0

    def close(self) -> None:
        """Finish the open shard, if there is one."""
        if self._shard is not None:
            self._finished(self._shard.close())
            self._shard = None
            self.num_shards += 1

    def discard(self) -> None:
        """Close the file of the unfinished shard, if there is one."""
        if self._shard is not None:
            self._shard.discard()
            self._shard = None


class TokenSplitWriter(_SplitWriter[TokenShardFile]):
    """Writer of token rows. A row is never split over shards."""

    def __init__(
        self, split: str, folder: Path, next_weight: NextWeight, finished: Finished, *, dtype: str
    ) -> None:
        super().__init__(split, folder, next_weight, finished)
        self._dtype = dtype
        self._target = 0
        self.rows = 0

    def append(self, tokens: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> None:
        """Write whole rows, and close full shards; `ends` are the exclusive ends of the rows in `tokens`."""
        import numpy as np

        first, start = 0, 0
        while first < len(ends):
            shard = self._shard or self._open()
            reach = start + self._target - shard.num_tokens
            last = max(first + 1, int(np.searchsorted(ends, reach, side="left")) + 1)
            last = min(last, len(ends))
            end = int(ends[last - 1])
            shard.append(tokens[start:end], ends[first:last] - start)
            self.weight += end - start
            self.rows += last - first
            first, start = last, end
            if shard.num_tokens >= self._target:
                self.close()

    def _open(self) -> TokenShardFile:
        self._target = self._next_weight(self.num_shards, self.weight)
        path = self._folder / f"shard-{self.num_shards:05d}.bin"
        self._shard = TokenShardFile(
            path, dtype=self._dtype, split=self._split, number=self.num_shards
        )
        return self._shard


class ColumnSplitWriter(_SplitWriter[ColumnShardFile]):
    """Writer of rows of typed columns."""

    def __init__(
        self,
        split: str,
        folder: Path,
        next_weight: NextWeight,
        finished: Finished,
        *,
        columns: Sequence[tuple[str, str]],
    ) -> None:
        super().__init__(split, folder, next_weight, finished)
        self._columns = columns

    @property
    def rows(self) -> int:
        """Number of rows written."""
        return self.weight

    def append(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Write rows, one array per column, and close full shards."""
        start, num_rows = 0, len(arrays[0])
        while start < num_rows:
            shard = self._shard or self._open()
            end = min(num_rows, start + shard.room)
            shard.append([array[start:end] for array in arrays])
            self.weight += end - start
            start = end
            if shard.room == 0:
                self.close()

    def _open(self) -> ColumnShardFile:
        capacity = max(1, self._next_weight(self.num_shards, self.weight))
        path = self._folder / f"shard-{self.num_shards:05d}.bin"
        self._shard = ColumnShardFile(
            path,
            columns=self._columns,
            capacity=capacity,
            split=self._split,
            number=self.num_shards,
        )
        return self._shard
