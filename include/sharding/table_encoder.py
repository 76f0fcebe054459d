"""Record batches to fixed-width numpy columns and a hash of each row: the hot path of tables."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from include.errors import DataError
from include.sharding.table_schema import ColumnKind, ColumnPlan, WiderTypeNeededError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_SECONDS_PER_DAY = 86_400
_MISSING_HASH = np.uint64(0x5851F42D4C957F2D)


class TableEncoder:
    """Encodes batches of one table; holds the categories seen so far, in order of first appearance."""

    def __init__(self, plans: Sequence[ColumnPlan], *, max_categories: int) -> None:
        self._plans = plans
        self._categories = {
            plan.name: Categories(plan.name, limit=max_categories)
            for plan in plans
            if plan.kind is ColumnKind.CATEGORY
        }

    def categories(self, name: str) -> tuple[str, ...] | None:
        """Return a category column's values by code; None for other columns."""
        found = self._categories.get(name)
        return None if found is None else tuple(found.values)

    def encode(
        self, batch: pa.RecordBatch
    ) -> tuple[list[npt.NDArray[Any]], npt.NDArray[np.uint64]]:
        """Return one array a column, in the order of the plans, and a 64-bit hash of each row's content.

        Numbers are hashed as float64, so a column that turns out to be float leaves every row where it was.

        Raises:
            WiderTypeNeededError: a column planned without missing values has one.
            DataError: a column has more categories than allowed.
        """
        hashes = np.zeros(batch.num_rows, dtype=np.uint64)
        scratch = np.empty_like(hashes)
        arrays = []
        for plan in self._plans:
            column = batch.column(plan.name)
            if plan.kind is ColumnKind.CATEGORY:
                array, bits = self._categories[plan.name].encode(column)
            else:
                array = _numbers(column, plan)
                bits = _number_bits(array)
            arrays.append(array)
            _mix(hashes, bits, scratch)
        _mix(hashes, scratch[:0], scratch)
        return arrays, hashes


class Categories:
    """The distinct strings of one column and their codes."""

    def __init__(self, column: str, *, limit: int) -> None:
        self._column, self._limit = column, limit
        self._codes: dict[str | None, int] = {None: -1}
        self._hashes = np.array([_MISSING_HASH], dtype=np.uint64)
        self.values: list[str] = []

    def encode(self, column: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
        """Return int32 codes, -1 where missing, and each value's 64-bit hash."""
        if not pa.types.is_dictionary(column.type):
            column = column.cast(pa.string()).dictionary_encode()
        local = [None if value is None else str(value) for value in column.dictionary.to_pylist()]
        self._learn([value for value in local if value is not None and value not in self._codes])
        # One more entry, for the indices that are null.
        table = np.array([*(self._codes[value] for value in local), -1], dtype=np.int32)
        indices = _values(column.indices)
        if column.indices.null_count:
            indices = np.where(_is_missing(column.indices), len(local), indices)
        codes = table[indices]
        return codes, self._hashes[codes]

    def _learn(self, values: list[str]) -> None:
        for value in dict.fromkeys(values):
            self._codes[value] = len(self.values)
            self.values.append(value)
        if len(self.values) > self._limit:
            raise _too_many_categories(self._column, self._limit, self.values)
        if values:
            digests = b"".join(
                hashlib.blake2b(value.encode(), digest_size=8).digest() for value in self.values
            )
            # Code -1 reads the last entry.
            hashes = np.frombuffer(digests, dtype="<u8")
            self._hashes = np.concatenate([hashes, [_MISSING_HASH]])


def _numbers(column: pa.Array, plan: ColumnPlan) -> npt.NDArray[Any]:
    """Return a column's numbers in the planned type, NaN where missing.

    Raises:
        WiderTypeNeededError: the planned type has no NaN.
    """
    if plan.kind is ColumnKind.TIME:
        array = _seconds(column)
    elif pa.types.is_boolean(column.type):
        array = _values(column.cast(pa.uint8()))
    elif pa.types.is_decimal(column.type):
        array = _values(column.cast(pa.float64()))
    else:
        array = _values(column)
    array = array.astype(plan.dtype, copy=False)
    if column.null_count:
        if array.dtype.kind != "f":
            raise WiderTypeNeededError(plan.name)
        array = np.where(_is_missing(column), array.dtype.type(np.nan), array)
    return array


def _seconds(column: pa.Array) -> npt.NDArray[np.float64]:
    kind = column.type
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    counts = _values(column.view(width)).astype(np.float64)
    if pa.types.is_date32(kind):
        counts *= _SECONDS_PER_DAY
        return counts
    unit = "ms" if pa.types.is_date64(kind) else kind.unit
    counts /= {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    return counts


def _is_missing(column: pa.Array) -> npt.NDArray[np.bool_]:
    bits = column.buffers()[0]
    if bits is None:
        return np.full(len(column), column.null_count > 0)
    flags = np.unpackbits(
        np.frombuffer(bits, np.uint8), count=column.offset + len(column), bitorder="little"
    )
    return np.equal(flags[column.offset :], 0)


def _values(column: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of a column as they lie in memory.

    Not by `Array.to_numpy`: that imports pandas, 50 MB.
    """
    width = np.dtype(_numpy_name(column.type))
    start = column.offset * width.itemsize
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.empty(0, dtype=width)
    return np.frombuffer(buffer, dtype=width, count=len(column), offset=start)


def _numpy_name(kind: pa.DataType) -> str:
    names = {pa.float16(): "float16", pa.float32(): "float32", pa.float64(): "float64"}
    return names.get(kind) or str(kind)


def _number_bits(array: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    numbers = array.astype(np.float64)
    if array.dtype.kind == "f":
        numbers += 0.0  # turns -0.0 into 0.0
        if np.isnan(numbers.sum()):
            numbers[np.isnan(numbers)] = np.nan  # every NaN is the same missing value
    return numbers.view(np.uint64)


def _mix(
    hashes: npt.NDArray[np.uint64],
    bits: npt.NDArray[np.uint64],
    scratch: npt.NDArray[np.uint64],
) -> None:
    """Fold one column into the row hashes, in place; without bits, only stir once more."""
    if len(bits):
        hashes ^= bits
    hashes *= _MULTIPLIER
    np.right_shift(hashes, _SHIFT, out=scratch)
    hashes ^= scratch


def _too_many_categories(column: str, limit: int, values: list[str]) -> DataError:
    return DataError(
        "a column of strings has too many distinct values to be a category",
        job_name="sharding",
        where=f"column {column!r}",
        got=f"more than {limit}, for example {', '.join(repr(each) for each in values[:3])}",
        allowed=f"at most {limit} (max_categories)",
        next_step=(
            "name the column in ignore_columns if it identifies rows, or in text_column to train on its text"
        ),
    )
