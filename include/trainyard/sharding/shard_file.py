"""Writers of shard files: contiguous little-endian buffers, each aligned to 64 bytes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.sharding.index import BufferPlace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

ALIGNMENT = 64
_MOVE_BYTES = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalShard:
    """A finished shard file on the local disk."""

    split: str
    number: int
    path: Path
    rows: int
    columns: tuple[BufferPlace, ...]
    num_tokens: int | None = None

    @property
    def weight(self) -> int:
        """Size by which shards are balanced: the number of tokens, or of rows if the shard is of kind `columns`."""
        return self.rows if self.num_tokens is None else self.num_tokens

    def buffer(self, name: str) -> npt.NDArray[Any]:
        """Return one buffer of the file as a read-only memory map."""
        import numpy as np

        place = next(each for each in self.columns if each.name == name)
        count = place.bytes // np.dtype(place.dtype).itemsize
        if count == 0:
            return np.empty(0, dtype=place.dtype)
        return np.memmap(
            self.path, dtype=place.dtype, mode="r", offset=place.offset, shape=(count,)
        )


class TokenShardFile:
    """Writer of a shard of kind `tokens`. `append` writes tokens; `close` writes the row ends."""

    def __init__(self, path: Path, *, dtype: str, split: str, number: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb", buffering=0)
        self._path, self._dtype = path, dtype
        self._split, self._number = split, number
        self._ends: list[npt.NDArray[np.uint64]] = []
        self.rows = 0
        self.num_tokens = 0

    def append(self, tokens: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> None:
        """Write whole rows; `ends` are the exclusive ends of the rows in `tokens`."""
        import numpy as np

        _write_all(self._file.fileno(), _bytes_of(tokens))
        self._ends.append(ends.astype(np.uint64) + np.uint64(self.num_tokens))
        self.rows += len(ends)
        self.num_tokens += len(tokens)

    def close(self) -> LocalShard:
        """Write the row ends and return the finished shard."""
        import numpy as np

        num_bytes = self.num_tokens * np.dtype(self._dtype).itemsize
        offset = aligned(num_bytes)
        ends = np.concatenate([np.empty(0, np.uint64), *self._ends])
        _write_all(self._file.fileno(), memoryview(b"\0" * (offset - num_bytes)))
        _write_all(self._file.fileno(), _bytes_of(ends))
        self._file.close()
        return LocalShard(
            split=self._split,
            number=self._number,
            path=self._path,
            rows=self.rows,
            num_tokens=self.num_tokens,
            columns=(
                BufferPlace(name="tokens", dtype=self._dtype, offset=0, bytes=num_bytes),
                BufferPlace(name="row_ends", dtype="uint64", offset=offset, bytes=ends.nbytes),
            ),
        )

    def discard(self) -> None:
        """Close the file without finishing it."""
        self._file.close()


class ColumnShardFile:
    """Writer of a shard of kind `columns` for up to `capacity` rows: each column is written at its final offset."""

    def __init__(
        self,
        path: Path,
        *,
        columns: Sequence[tuple[str, str]],
        capacity: int,
        split: str,
        number: int,
    ) -> None:
        import numpy as np

        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w+b", buffering=0)
        self._path, self._columns = path, columns
        self._split, self._number = split, number
        self._widths = [np.dtype(dtype).itemsize for _, dtype in columns]
        self._offsets = _offsets(self._widths, capacity)
        self.capacity = capacity
        self.rows = 0

    @property
    def room(self) -> int:
        """Number of rows that still fit."""
        return self.capacity - self.rows

    def append(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Write rows, one array per column in the order of the columns. The rows must fit."""
        descriptor = self._file.fileno()
        for array, offset, width in zip(arrays, self._offsets, self._widths, strict=True):
            _write_all(descriptor, _bytes_of(array), offset + self.rows * width)
        self.rows += len(arrays[0])

    def close(self) -> LocalShard:
        """Finish and return the shard.

        If it has fewer rows than its capacity, close the gaps between the column buffers.
        """
        places = _offsets(self._widths, self.rows)
        if self.rows < self.capacity:
            for old, new, width in zip(self._offsets, places, self._widths, strict=True):
                _move(self._file.fileno(), old, new, self.rows * width)
        end = places[-1] + self._widths[-1] * self.rows if places else 0
        os.ftruncate(self._file.fileno(), end)
        self._zero_gaps(places)
        self._file.close()
        return LocalShard(
            split=self._split,
            number=self._number,
            path=self._path,
            rows=self.rows,
            columns=tuple(
                BufferPlace(name=name, dtype=dtype, offset=offset, bytes=self.rows * width)
                for (name, dtype), offset, width in zip(
                    self._columns, places, self._widths, strict=True
                )
            ),
        )

    def discard(self) -> None:
        """Close the file without finishing it."""
        self._file.close()

    def _zero_gaps(self, places: Sequence[int]) -> None:
        for offset, width, following in zip(places, self._widths, places[1:], strict=False):
            end = offset + width * self.rows
            _write_all(self._file.fileno(), memoryview(b"\0" * (following - end)), end)


def aligned(offset: int) -> int:
    """Return the smallest multiple of 64 that is not below the offset."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _offsets(widths: Sequence[int], rows: int) -> list[int]:
    offsets, end = [], 0
    for width in widths:
        offsets.append(aligned(end))
        end = offsets[-1] + width * rows
    return offsets


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    return array.data.cast("B")


def _write_all(descriptor: int, data: memoryview, offset: int | None = None) -> None:
    while data:
        if offset is None:
            count = os.write(descriptor, data)
        else:
            count = os.pwrite(descriptor, data, offset)
            offset += count
        data = data[count:]


def _move(descriptor: int, old: int, new: int, size: int) -> None:
    """Move bytes towards the start of the file, in pieces of 1 MiB."""
    if old == new:
        return
    for start in range(0, size, _MOVE_BYTES):
        piece = os.pread(descriptor, min(_MOVE_BYTES, size - start), old + start)
        _write_all(descriptor, memoryview(piece), new + start)
