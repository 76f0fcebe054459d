"""Second pass of sharding, which divides the rows of a split into exactly N shards of about equal size.

It reads the shards that the first pass wrote. The size counts tokens, or rows if the data set has columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.errors import DataError
from trainyard.sharding.shard_file import TokenShardFile
from trainyard.sharding.split_writer import ColumnSplitWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from trainyard.sharding.shard_file import LocalShard
    from trainyard.sharding.split_writer import Finished

_REPLAY_ROWS = 65_536


def balance(
    split: str, parts: Sequence[LocalShard], folder: Path, *, num_shards: int, finished: Finished
) -> None:
    """Write the rows of the first pass's shards (`parts`), in their order, as `num_shards` shards.

    The shards have about the same number of tokens, or of rows if the data set has columns. No shard is empty.

    Raises:
        DataError: there are fewer rows than shards.
    """  # noqa: DOC501 - the named function returns a DataError
    num_rows = sum(part.rows for part in parts)
    if num_rows < num_shards:
        raise too_few_rows(split, num_rows, num_shards)
    if parts[0].num_tokens is None:
        _balance_columns(split, parts, folder, num_shards, finished)
    else:
        _balance_tokens(split, parts, folder, num_shards, finished)


def too_few_rows(split: str, num_rows: int, num_shards: int) -> DataError:
    """Return the error for a split that cannot fill its shards."""
    nothing = f"nothing is left for the {split} split"
    return DataError(
        f"the {split} split cannot fill its shards" if num_rows else nothing,
        job_name="sharding",
        where=f"split {split}",
        got=f"{num_rows} row(s) for {num_shards} shard(s)",
        allowed="at least one row per shard",
        next_step="add data or raise sample_fraction, change the fractions (0 disables a split), or use fewer readers "
        "or shards",
    )


def _balance_columns(
    split: str, parts: Sequence[LocalShard], folder: Path, num_shards: int, finished: Finished
) -> None:
    num_rows = sum(part.rows for part in parts)
    columns = [(place.name, place.dtype) for place in parts[0].columns]

    def num_rows_of(number: int, written: int) -> int:
        return num_rows * (number + 1) // num_shards - written

    writer = ColumnSplitWriter(split, folder, num_rows_of, finished, columns=columns)
    for part in parts:
        buffers = [part.buffer(name) for name, _ in columns]
        for start in range(0, part.rows, _REPLAY_ROWS):
            writer.append([buffer[start : start + _REPLAY_ROWS] for buffer in buffers])


def _balance_tokens(
    split: str, parts: Sequence[LocalShard], folder: Path, num_shards: int, finished: Finished
) -> None:
    import numpy as np

    rule = _RowShares(
        num_rows=sum(part.rows for part in parts),
        num_tokens=sum(part.num_tokens or 0 for part in parts),
        num_shards=num_shards,
    )

    def open_shard(number: int) -> TokenShardFile:
        path = folder / f"shard-{number:05d}.bin"
        return TokenShardFile(path, dtype=parts[0].columns[0].dtype, split=split, number=number)

    number, shard = 0, open_shard(0)
    for part in parts:
        tokens, ends = part.buffer("tokens"), part.buffer("row_ends").astype(np.int64)
        numbers = rule.next_numbers(ends)
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
        for first, last in zip(firsts, [*firsts[1:], len(ends)], strict=True):
            if numbers[first] != number:
                finished(shard.close())
                number = int(numbers[first])
                shard = open_shard(number)
            start = int(ends[first - 1]) if first else 0
            shard.append(tokens[start : int(ends[last - 1])], ends[first:last] - start)
    finished(shard.close())


class _RowShares:
    """Assignment of each row to a shard; no shard stays empty.

    The split's tokens are divided into consecutive spans of equal length, one per shard. A row belongs to the
    span that contains its middle token, unless a shard would then stay empty.
    """

    def __init__(self, *, num_rows: int, num_tokens: int, num_shards: int) -> None:
        self._num_rows, self._num_tokens, self._num_shards = num_rows, num_tokens, num_shards
        self._row = 0
        self._token = 0
        self._least = 0

    def next_numbers(self, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the shard number of each of the next rows.

        The numbers of two consecutive rows differ by at most 1.

        Args:
            ends: exclusive end of each row, counted in tokens from the start of the first of these rows.
        """
        import numpy as np

        starts = np.concatenate([[0], ends[:-1]])
        middles = (starts + ends) / 2 + self._token
        wanted = (middles * self._num_shards / self._num_tokens).astype(np.int64)
        rows = np.arange(self._row, self._row + len(ends))
        # Never ahead of the row before by more than one, never so far behind that a later shard stays empty.
        slack = np.minimum.accumulate(np.concatenate([[self._least], wanted - rows]))
        numbers = np.maximum(slack[1:] + rows, self._num_shards - (self._num_rows - rows))
        self._least = int(slack[-1])
        self._row += len(ends)
        self._token += int(ends[-1])
        return np.minimum(numbers, self._num_shards - 1)
