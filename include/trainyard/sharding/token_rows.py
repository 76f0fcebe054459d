"""Rows of token ids from existing arrays: raw `.bin`, `.npy`, and Megatron's `.bin` with `.idx`."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.lib import format as npy

from trainyard.errors import DataError
from trainyard.sharding.line_blocks import READ_ERRORS, opened
from trainyard.sharding.megatron_index import read_megatron_index
from trainyard.sharding.source_files import INDEX_SUFFIX, ReadProgress, suffix_of, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

    import numpy.typing as npt

    from trainyard.sharding.objects import Objects
    from trainyard.sharding.quarantine import BadRows
    from trainyard.sharding.reading import Reading
    from trainyard.sharding.source_files import SourceFile

BLOCK_TOKENS = 1 << 20
"""Tokens per read."""
MAX_ROW_TOKENS = 1 << 20
"""Longest row. Longer rows are split to bound memory."""
PIECE_TOKENS = 4096
"""Length of a row, in tokens, of an array without row boundaries and without an end token."""
_LARGEST_UINT16 = 1 << 16
_NPY = ".npy"
_WHOLE_NUMBERS = "iu"
_MOST_AXES = 2


class Vocabulary(Protocol):
    """Number of ids, and the id that ends a row."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""

    @property
    def eos_token_id(self) -> int | None:
        """Id that ends a row; None if it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """Batch of rows of token ids.

    Attributes:
        tokens: ids of all rows, uint32.
        ends: exclusive end of each row in `tokens`.
        done: share of the whole source that has been read after these rows, 0 to 1.
    """

    tokens: npt.NDArray[np.uint32]
    ends: npt.NDArray[np.int64]
    done: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLayout:
    """Layout of the ids in one file.

    If `row_tokens` and `row_ends` are both None, a row ends with the end token of the vocabulary. Without an
    end token, it has `PIECE_TOKENS` tokens.

    Attributes:
        dtype: stored type of an id.
        row_tokens: number of tokens in each row of an array of two axes; None for other files.
        row_ends: number of tokens up to the end of each row, from a Megatron index; None without one.
        num_tokens: number of tokens in the file; None if no header states it.
    """

    dtype: np.dtype[Any]
    row_tokens: int | None = None
    num_tokens: int | None = None
    row_ends: npt.NDArray[np.int64] | None = None

    def ends(
        self, tokens: npt.NDArray[Any], first: int, eos_token_id: int | None
    ) -> npt.NDArray[np.int64]:
        """Return the exclusive ends of the complete rows, as positions in `tokens`.

        A row of more than `MAX_ROW_TOKENS` is split, so each of its pieces has an end.

        Args:
            tokens: consecutive tokens of the file; the first one starts a row or a piece of one.
            first: position of the first of these tokens in the file, from 0.
            eos_token_id: the token that ends a row if the layout defines no rows; None if there is no such token.
        """
        if self.row_ends is not None:
            # An empty row at `first` ended with the row before it, unless there is none.
            low = int(np.searchsorted(self.row_ends, first, side="right")) if first else 0
            high = int(np.searchsorted(self.row_ends, first + len(tokens), side="right"))
            found = self.row_ends[low:high] - first
        elif self.row_tokens is None and eos_token_id is not None:
            found = np.flatnonzero(tokens == eos_token_id) + 1
        else:
            length = self.row_tokens or PIECE_TOKENS
            found = np.arange(length - first % length, len(tokens) + 1, length)
        return _with_cuts(found.astype(np.int64), len(tokens))


def token_array_rows(reading: Reading, vocabulary: Vocabulary) -> Iterator[TokenBatch]:
    """Yield the rows of token arrays. An empty row, or one with an id outside the vocabulary, is a bad row.

    A row is a document of a Megatron index, or a row of an array of two axes. In other arrays a row ends with the end
    token, or has `PIECE_TOKENS` ids if the vocabulary has no end token. Rows of more than `MAX_ROW_TOKENS` are split.

    Raises:
        DataError: a file cannot be read, or is not an array of token ids.
    """  # noqa: DOC501 - the named function returns a DataError
    progress = ReadProgress(reading.files)
    indexes = {file.name: file for file in reading.files if suffix_of(file.name) == INDEX_SUFFIX}
    arrays = [file for file in reading.files if file.name not in indexes]
    _check_indexes(indexes, arrays)
    for file in arrays:
        index = indexes.get(_index_name(file.name))
        try:
            for at, tokens, ends, position in _rows(file, index, reading.objects, vocabulary):
                batch = good_rows(
                    tokens,
                    ends,
                    file=file.name,
                    line_of=partial(operator.add, at),
                    vocabulary=vocabulary,
                    bad_rows=reading.bad_rows,
                    holder="the document",
                )
                yield TokenBatch(tokens=batch[0], ends=batch[1], done=progress.at(file, position))
        except READ_ERRORS as error:
            raise unreadable(file, error) from error


def good_rows(
    tokens: npt.NDArray[Any],
    ends: npt.NDArray[np.int64],
    *,
    file: str,
    line_of: Callable[[int], int],
    vocabulary: Vocabulary,
    bad_rows: BadRows,
    holder: str,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Return the rows in which every id belongs to the vocabulary.

    The others, and rows without ids, are recorded as bad rows. `line_of` returns the number of a row in its
    file. `holder` is the subject of the reason for a row without ids, such as `the document` in "the document
    is empty".
    """
    size = vocabulary.vocab_size
    is_good = np.diff(ends, prepend=0) > 0
    for row in np.flatnonzero(~is_good).tolist():
        bad_rows.add(file, line_of(row), f"no tokens: {holder} is empty", "")
    wrong = np.flatnonzero((tokens < 0) | (tokens >= size))
    if not len(wrong) and is_good.all():
        return tokens.astype(np.uint32, copy=False), ends
    rows, firsts = np.unique(np.searchsorted(ends, wrong, side="right"), return_index=True)
    for row, place in zip(rows.tolist(), wrong[firsts].tolist(), strict=True):
        start = int(ends[row - 1]) if row else 0
        reason = f"outside the vocabulary: id {tokens[place]} at token {place - start}, allowed 0 to {size - 1}"
        bad_rows.add(file, line_of(row), reason, "")
    is_good[rows] = False
    return chosen_rows(tokens.astype(np.uint32), ends, is_good)


def chosen_rows(
    tokens: npt.NDArray[Any], ends: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the tokens of the rows for which `chosen` is True, and the ends of these rows in the returned tokens.

    `ends` are the ends of all rows in `tokens`, exclusive.
    """
    lengths = np.diff(ends, prepend=0)
    return tokens[np.repeat(chosen, lengths)], np.cumsum(lengths[chosen])


def _rows(
    file: SourceFile, index: SourceFile | None, objects: Objects, vocabulary: Vocabulary
) -> Iterator[tuple[int, npt.NDArray[Any], npt.NDArray[np.int64], int]]:
    """Yield whole rows of a file as (number of the first row, tokens, row ends, stored bytes read so far)."""
    row, first = 1, 0
    with opened(file, objects) as (stream, raw):
        layout = _layout(file, index, objects, stream, vocabulary)
        carry = np.empty(0, layout.dtype)
        for block in _blocks(file, stream, layout):
            if not first:
                _check_width(file, block)
            tokens = np.concatenate([carry, block])
            ends = layout.ends(tokens, first, vocabulary.eos_token_id)
            whole = int(ends[-1]) if len(ends) else 0
            if whole:
                yield row, tokens[:whole], ends, raw.tell()
                row += len(ends)
            carry, first = tokens[whole:], first + whole
        is_capped = file.max_bytes is not None and file.max_bytes < file.size
        if len(carry) and (row == 1 or not is_capped):
            yield row, carry, np.array([len(carry)], np.int64), file.size


def _blocks(file: SourceFile, stream: BinaryIO, layout: TokenLayout) -> Iterator[npt.NDArray[Any]]:
    """Yield the ids of a stream.

    Raises:
        ValueError: the last id is cut off.
        DataError: the stream has fewer or more ids than its header states.
    """  # noqa: DOC501 - the named function returns a DataError
    width = layout.dtype.itemsize
    left, size = file.max_bytes, BLOCK_TOKENS * width
    rest, num_bytes = b"", 0
    while data := stream.read(size if left is None else min(left, size)):
        left = None if left is None else left - len(data)
        num_bytes += len(data)
        data = rest + data
        count = len(data) // width
        rest = data[count * width :]
        if count:
            yield np.frombuffer(data, layout.dtype, count)
    if left == 0:
        return  # max_bytes ends it
    if layout.num_tokens is not None and num_bytes != layout.num_tokens * width:
        raise _other_length(file, layout.num_tokens, num_bytes=num_bytes, width=width)
    if rest and left is None:
        raise ValueError(
            f"the file ends with {len(rest)} bytes of an id, but each id has {width} bytes"
        )


def _other_length(file: SourceFile, num_tokens: int, *, num_bytes: int, width: int) -> DataError:
    return DataError(
        "the size of a NumPy file differs from its header",
        job_name="sharding",
        where=file.name,
        got=f"{num_bytes:,} bytes after the header ({num_bytes / width:,.10g} ids of {width} bytes)",
        allowed=f"{num_tokens * width:,} bytes ({num_tokens:,} ids)",
        next_step="copy or write the file again, because it is truncated, or has other data at its end",
    )


def _layout(
    file: SourceFile,
    index: SourceFile | None,
    objects: Objects,
    stream: BinaryIO,
    vocabulary: Vocabulary,
) -> TokenLayout:
    """Return the layout of a file, after reading its header from the stream.

    Raises:
        DataError: an index or header is wrong, or a header states another number of ids than the file has.
    """  # noqa: DOC501 - the named functions return a DataError
    if index is not None:
        dtype, row_ends = read_megatron_index(index, objects, num_bytes=file.size)
        return TokenLayout(dtype=dtype, row_ends=row_ends)
    if suffix_of(file.name) == _NPY:
        header = _read_npy_header(file.name, stream)
        if file.compression is None:  # not every decompressed stream has a position
            num_bytes, width = file.size - stream.tell(), header.dtype.itemsize
            if num_bytes != header.num_tokens * width:
                raise _other_length(file, header.num_tokens, num_bytes=num_bytes, width=width)
        return TokenLayout(
            dtype=header.dtype, row_tokens=header.row_tokens, num_tokens=header.num_tokens
        )
    is_small = vocabulary.vocab_size <= _LARGEST_UINT16
    return TokenLayout(dtype=np.dtype("<u2" if is_small else "<u4"))


def _with_cuts(ends: npt.NDArray[np.int64], num_tokens: int) -> npt.NDArray[np.int64]:
    """Return the ends, with additional ends that split rows longer than `MAX_ROW_TOKENS`."""
    starts = np.concatenate([[0], ends])
    stops = np.concatenate([ends, [num_tokens + 1]])
    long = np.flatnonzero(stops - starts > MAX_ROW_TOKENS)
    cuts = [np.arange(starts[at] + MAX_ROW_TOKENS, stops[at], MAX_ROW_TOKENS) for at in long]
    return np.sort(np.concatenate([ends, *cuts])) if cuts else ends


def _check_width(file: SourceFile, block: npt.NDArray[Any]) -> None:
    """Check that a raw file, read as uint16, was not written as uint32.

    A uint32 id below 65,536 would be read as two ids: the id itself and a 0.

    Raises:
        DataError: every second id is 0.
    """
    is_raw = suffix_of(file.name) != _NPY and block.dtype == np.dtype("<u2")
    if is_raw and len(block) > 1 and not block[1::2].any() and block[::2].any():
        raise DataError(
            "a token array seems to have wider ids than its vocabulary needs",
            job_name="sharding",
            where=file.name,
            got="every second id is 0, as if uint32 ids were read as uint16",
            allowed="uint16 for a vocabulary of up to 65,536 ids, uint32 for a larger one",
            next_step="write it as uint16, or as .npy, which stores the type",
        )


def _check_indexes(indexes: Mapping[str, SourceFile], arrays: list[SourceFile]) -> None:
    wanted = {_index_name(file.name) for file in arrays}
    if alone := sorted(indexes.keys() - wanted):
        raise DataError(
            "a Megatron index has no array file",
            job_name="sharding",
            where=alone[0],
            allowed=f"{PurePosixPath(alone[0]).with_suffix('.bin')} in the same folder",
            next_step="include both files in the source, for example with a folder or a glob such as "
            f"{PurePosixPath(alone[0]).stem}.*",
        )


def _index_name(name: str) -> str:
    """Return the name of a Megatron array's index: `text.idx` for `text.bin`; empty for other files."""
    path = PurePosixPath(name)
    return str(path.with_suffix(INDEX_SUFFIX)) if path.suffix == ".bin" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NpyHeader:
    """Header of an array.

    Attributes:
        dtype: stored type of an id.
        row_tokens: length of each row; None for an array of one axis.
        num_tokens: number of ids in the array.
    """

    dtype: np.dtype[Any]
    row_tokens: int | None
    num_tokens: int


def _read_npy_header(name: str, stream: BinaryIO) -> _NpyHeader:
    """Return the header, and advance the stream to the ids.

    Raises:
        ValueError: the stream is not a NumPy file.
        DataError: the array is not of integers, does not have one or two axes, or is in column-major order.
    """
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, is_fortran, dtype = read(stream)
    is_wide = len(shape) == _MOST_AXES
    if (
        dtype.kind not in _WHOLE_NUMBERS
        or not 1 <= len(shape) <= _MOST_AXES
        or (is_wide and is_fortran)
    ):
        raise DataError(
            "a NumPy file is not an array of token ids",
            job_name="sharding",
            where=name,
            got=f"{dtype} of shape {shape}{', in column order' if is_fortran else ''}",
            allowed="integers of shape (tokens,) or (rows, tokens), in row-major order",
            next_step="convert the ids and write them with numpy.save(path, numpy.ascontiguousarray(ids))",
        )
    row_tokens = int(shape[1]) if is_wide else None
    return _NpyHeader(dtype=dtype, row_tokens=row_tokens, num_tokens=math.prod(shape))
