"""Encoder of record batches to numpy columns of fixed width, and to row hashes: the hot path of tables."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainyard.errors import DataError
from trainyard.sharding.row_hash import MISSING_BITS, RowHasher, category_bits
from trainyard.sharding.split_rule import text_hashes
from trainyard.sharding.table_schema import (
    ColumnKind,
    ColumnPlan,
    ReplanNeededError,
    inexact_numbers,
    inexact_time,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

log = logging.getLogger(__name__)

_SECONDS_PER_DAY = 86_400
_EXACT_INTEGERS = 2**53
_DECIMAL_BITS = 128
_EXACT_DIGITS = 10**15
"""Decimals of up to 15 digits do not change when converted to float64 and back (IEEE 754)."""


class TableEncoder:
    """Encoder of the batches of one table. It keeps the categories seen so far, in order of first appearance."""

    def __init__(self, plans: Sequence[ColumnPlan], *, max_categories: int) -> None:
        self._plans = plans
        self._hasher = RowHasher()
        self._categories = {
            plan.name: Categories(plan.name, limit=max_categories)
            for plan in plans
            if plan.kind is ColumnKind.CATEGORY
        }

    def categories(self, name: str) -> tuple[str, ...] | None:
        """Return the values seen so far in a category column; None for other columns.

        The value with code 0 comes first, then the value with code 1, and so on.
        """
        found = self._categories.get(name)
        return None if found is None else tuple(found.values)

    @property
    def inexact(self) -> set[str]:
        """Names of the columns with integers that float64 does not represent."""
        return self._hasher.inexact

    def encode(
        self, batch: pa.RecordBatch
    ) -> tuple[list[npt.NDArray[Any]], npt.NDArray[np.uint64]]:
        """Return one array per buffer, in the order of `buffers_of`, and a 64-bit hash of each row's content.

        Raises:
            ReplanNeededError: a column that was planned without missing values has one.
            DataError: a column has too many categories, or a number or time that its type cannot represent.
        """
        self._hasher.start(batch.num_rows)
        arrays: list[npt.NDArray[Any]] = []
        validity: list[npt.NDArray[Any]] = []
        for plan in self._plans:
            column = batch.column(plan.name)
            if plan.kind is ColumnKind.CATEGORY:
                codes, bits = self._categories[plan.name].encode(column)
                arrays.append(codes)
                self._hasher.add_bits(plan.name, bits)
            else:
                numbers, missing = _numbers(column, plan)
                arrays.append(numbers)
                apart = _lost_digits(column, plan.name)
                self._hasher.add_numbers(plan.name, numbers, missing, apart=apart)
                if plan.validity is not None:
                    there = np.ones(len(column), np.bool_) if missing is None else ~missing
                    validity.append(there.view(np.uint8))
        return arrays + validity, self._hasher.finish()


def buffers_of(plans: Sequence[ColumnPlan]) -> list[tuple[str, str]]:
    """Return (name, dtype) of a shard's buffers: first the columns, then the validity buffers."""
    columns = [(plan.name, plan.dtype) for plan in plans]
    return columns + [(plan.validity, "uint8") for plan in plans if plan.validity is not None]


class Categories:
    """Distinct strings of one column and their codes."""

    def __init__(self, column: str, *, limit: int) -> None:
        self._column, self._limit = column, limit
        self._codes: dict[str | None, int] = {None: -1}
        self._hashes = np.array([MISSING_BITS], dtype=np.uint64)
        self._dictionary: pa.Array | None = None
        self._table = np.array([-1], dtype=np.int32)
        self.values: list[str] = []

    def encode(self, column: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
        """Return the int32 codes of the values (-1 for missing ones) and their 64-bit hashes."""
        if not pa.types.is_dictionary(column.type):
            column = column.cast(pa.string()).dictionary_encode()
        elif len(self.values) + len(column.dictionary) > self._limit:
            column = column.cast(pa.string()).dictionary_encode()  # without entries that no row has
        if self._dictionary is None or not column.dictionary.equals(self._dictionary):
            self._dictionary = column.dictionary
            self._table = self._code_table(column.dictionary.to_pylist())
        indices = _values(column.indices).astype(np.intp, copy=False)
        if column.indices.null_count:  # -1 is the last entry; narrow types do not hold its position
            indices = np.where(_is_missing(column.indices), -1, indices)
        codes = self._table.take(indices)
        return codes, self._hashes.take(codes)

    def _code_table(self, local: list[Any]) -> npt.NDArray[np.int32]:
        """Return the code of each entry of a batch's dictionary, `local`, in the order of the entries.

        One more element, -1, follows them. It is the code of rows without a value.
        """
        names = [None if value is None else str(value) for value in local]
        self._learn([name for name in names if name is not None and name not in self._codes])
        return np.array([*(self._codes[name] for name in names), -1], dtype=np.int32)

    def _learn(self, values: list[str]) -> None:
        for value in dict.fromkeys(values):
            self._codes[value] = len(self.values)
            self.values.append(value)
        if len(self.values) > self._limit:
            raise _too_many_categories(self._column, self._limit, self.values)
        added = category_bits(self.values[len(self._hashes) - 1 :])
        # The missing value's hash stays the last entry: code -1 reads it.
        self._hashes = np.concatenate([self._hashes[:-1], added, self._hashes[-1:]])


def _numbers(
    column: pa.Array, plan: ColumnPlan
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """Return a column's numbers in the planned type, and a mask that marks the missing integers.

    A missing float is NaN. A missing integer is 0, and the mask is True there. The mask is None if no integer
    is missing.

    Raises:
        ReplanNeededError: a column that was planned without missing values has one.
        DataError: the type cannot represent a number.
    """
    if plan.kind is ColumnKind.TIME:
        array = _seconds(column, plan.name)
    elif pa.types.is_boolean(column.type):
        array = _values(column.cast(pa.uint8()))
    elif pa.types.is_decimal(column.type):
        array = _decimals(column, plan)
    else:
        array = _values(column)
    array = array.astype(plan.dtype, copy=False)
    if not column.null_count:
        return array, None
    missing = _is_missing(column)
    if array.dtype.kind == "f":
        return np.where(missing, array.dtype.type(np.nan), array), None
    if plan.validity is None:
        raise ReplanNeededError(plan.name)
    return np.where(missing, array.dtype.type(0), array), missing


def _decimals(column: pa.Array, plan: ColumnPlan) -> npt.NDArray[Any]:
    """Return decimals in the type of the plan: as int64, or as the nearest float64.

    Raises:
        DataError: a whole number cannot be represented exactly in this type.
    """  # noqa: DOC501 - the named function returns a DataError
    if plan.dtype == "int64":
        if column.type.bit_width < _DECIMAL_BITS:  # Arrow's cast from these to integers is wrong
            column = column.cast(pa.decimal128(38, column.type.scale))
        try:
            return _values(column.cast(pa.int64()))
        except pa.ArrowInvalid as error:
            raise inexact_numbers(plan.name, error) from error
    # By their digits: the cast from decimal divides by a power of ten and is not the nearest float.
    floats = column.cast(pa.string()).cast(pa.float64())
    large = column.filter(pc.greater_equal(pc.abs(floats), _EXACT_INTEGERS))
    for value in large.drop_null().to_pylist():
        if value == int(value) != int(float(value)):
            raise inexact_numbers(plan.name, value)
    return _values(floats)


def _lost_digits(column: pa.Array, name: str) -> npt.NDArray[np.uint64] | None:
    """Return bits that distinguish decimals with the same nearest float64, for use in the row hash.

    The bits of an exact decimal are 0. A decimal is exact if it equals the shortest text of its nearest
    float64. Return None if all values are exact, or if the column has no decimals.
    """
    if not pa.types.is_decimal(column.type) or column.type.scale <= 0:
        return None
    text = column.cast(pa.string())
    floats = text.cast(pa.float64())
    largest = pc.max(pc.abs(floats)).as_py() or 0.0
    if largest * 10.0**column.type.scale < _EXACT_DIGITS:
        return None
    plain = pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
    doubtful = pc.indices_nonzero(pc.not_equal(plain, floats.cast(pa.string()))).to_pylist()
    values = {at: column[at].as_py() for at in doubtful}
    lost = {at: value for at, value in values.items() if Decimal(repr(float(value))) != value}
    if not lost:
        return None
    log.warning(
        "column %r: decimals become the nearest floats, such as %s", name, max(lost.values())
    )
    apart = np.zeros(len(column), np.uint64)
    apart[list(lost)] = text_hashes([str(value.normalize()).encode() for value in lost.values()])
    return apart


def _seconds(column: pa.Array, name: str) -> npt.NDArray[np.float64]:
    """Return times in seconds.

    Raises:
        DataError: a time has nanoseconds that float64 cannot represent.
    """  # noqa: DOC501 - the named function returns a DataError
    kind = column.type
    if not pa.types.is_date(kind) and kind.unit == "ns":
        counts = _values(column.drop_null().view(pa.int64()))
        fine = counts[(counts % 1000 != 0) & (np.abs(counts) >= _EXACT_INTEGERS)]
        if len(fine):
            raise inexact_time(name, int(fine[0]))
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    counts = _values(column.view(width))
    if column.null_count:
        counts = np.where(_is_missing(column), 0, counts)
    if pa.types.is_date32(kind):
        return counts.astype(np.float64) * _SECONDS_PER_DAY
    unit = "ms" if pa.types.is_date64(kind) else kind.unit
    if unit == "ns" and not (counts % 1000).any():
        counts, unit = counts // 1000, "us"  # most of these are exact as float64
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    seconds: npt.NDArray[np.float64] = counts / np.float64(per_second)
    far = (counts >= _EXACT_INTEGERS) | (counts <= -_EXACT_INTEGERS)
    if per_second > 1 and far.any():
        seconds[far] = _far_seconds(counts[far], per_second, name)
    return seconds


def _far_seconds(counts: npt.NDArray[Any], per_second: int, name: str) -> npt.NDArray[np.float64]:
    """Return times in seconds, each rounded once to the nearest float64.

    Only times of 2^53 or more units before or after 1970 need this function. It logs a warning if such a time
    is not a whole number of seconds.

    Args:
        counts: the times as numbers of units.
        per_second: number of units in a second.
        name: name of the column, for the warning.
    """
    different, at = np.unique(counts, return_inverse=True)
    # Python rounds the quotient of integers once; numpy rounds the count, too.
    seconds = np.array([count / per_second for count in different.tolist()])
    if fractions := different[different % per_second != 0].tolist():
        log.warning(
            "column %r: times far from 1970 become the nearest float64 of their seconds, such as %r for %s / %s s",
            name,
            fractions[0] / per_second,
            fractions[0],
            per_second,
        )
    return seconds[at]


def _is_missing(column: pa.Array) -> npt.NDArray[np.bool_]:
    bits = column.buffers()[0]
    if bits is None:
        return np.full(len(column), column.null_count > 0)
    flags = np.unpackbits(
        np.frombuffer(bits, np.uint8), count=column.offset + len(column), bitorder="little"
    )
    return np.equal(flags[column.offset :], 0)


def _values(column: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of a column as a view of its memory.

    `Array.to_numpy` is not used, because it imports pandas (50 MB).
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


def _too_many_categories(column: str, limit: int, values: list[str]) -> DataError:
    return DataError(
        "a column of strings has too many distinct values for a category column",
        job_name="sharding",
        where=f"column {column!r}",
        got=f"more than {limit}, for example {', '.join(repr(each) for each in values[:3])}",
        allowed=f"at most {limit}",
        next_step=(
            "if the column identifies rows, add it to ignore_columns; to train on its text, set text_column; if it "
            "has numbers, write them without leading zeros; if it has times, write numbers or Parquet timestamps"
        ),
    )
