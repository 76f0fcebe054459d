"""Typed columns of a table: the encoding and the stored dtype for each source type."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from trainyard.errors import DataError, Finding, SpecError, did_you_mean, near_matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from trainyard.sharding.settings import ShardSettings


WHOLE_DTYPES = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))

FLOAT_DTYPES = frozenset({"float16", "float32", "float64"})

EXACT = "exact "
"""Prefix of the content type of integers without a declared type, if float64 represents each of them."""


class ColumnKind(StrEnum):
    """Encoding of a column's values as numbers."""

    NUMBER = "number"
    TIME = "time"  # seconds since 1970-01-01 UTC; a time of day or a duration in seconds
    CATEGORY = "category"  # int32 codes, -1 where missing


class Role(StrEnum):
    """Purpose of a column."""

    FEATURE = "feature"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """One column of the shards: its encoding and its stored type.

    Attributes:
        validity: name of the buffer (uint8) that has 1 for present and 0 for missing values; None without one. Only
            integer and boolean columns with missing values have it. Missing floats are NaN, missing categories -1.
    """

    name: str
    kind: ColumnKind
    dtype: str
    role: Role
    validity: str | None = None


class ReplanNeededError(Exception):
    """A column's values do not match its plan: plan the column again, then read the source again.

    Attributes:
        column: name of the column.
        kind: type in which to read the column. If it is None, the type stays the same, and the column is
            planned as one with missing values.
    """

    def __init__(self, column: str, kind: pa.DataType | None = None) -> None:
        super().__init__(
            f"column {column!r} has values that do not fit the type chosen from the first rows; "
            "choose the type again, and read the source again"
        )
        self.column, self.kind = column, kind


def joined_dtype(dtypes: Sequence[str]) -> str | None:
    """Return the dtype that holds the numbers of all these dtypes without loss; None if there is none.

    Whole numbers are not joined with floats, which represent them up to 2^53 only.
    """
    for kind in (WHOLE_DTYPES, FLOAT_DTYPES):
        if dtypes and kind.issuperset(dtypes):
            wide = str(functools.reduce(np.promote_types, dtypes, np.dtype(dtypes[0])))
            return wide if wide in kind else None
    return None


def merged_dtype(types: Sequence[str]) -> str | None:
    """Return the dtype that holds a column's values from all parts of a data set; None if there is none.

    Each part is sharded on its own. The column may have fractions in some parts and only integers in others.
    The dtype is then float64, if each integer is exact as float64.

    Args:
        types: the column's content type in each part, as in `Written.types`.
    """
    dtype = joined_dtype([each.removeprefix(EXACT) for each in types])
    if dtype or not types:
        return dtype
    fits = all(each == "float64" or each.startswith(EXACT) for each in types)
    return "float64" if fits else None


def inexact_numbers(column: str, example: object) -> DataError:
    """Return the error for integers that no type can represent exactly together with the column's other values."""
    return DataError(
        "a column has integers that no numeric type can represent together with its other values",
        job_name="sharding",
        where=f"column {column!r}",
        got=str(example)[:50],
        allowed="64-bit integers; up to 2^53 if the column also has fractions",
        next_step="if the column identifies rows, add it to ignore_columns; otherwise add it to category_columns, "
        "or store it as text or as two columns",
    )


def inexact_time(column: str, nanoseconds: int) -> DataError:
    """Return the error for times with nanoseconds that float64 seconds do not represent."""
    return DataError(
        "a column has times with nanoseconds that are lost when the times are stored as float64 seconds",
        job_name="sharding",
        where=f"column {column!r}",
        got=f"{nanoseconds} ns",
        allowed="times in whole microseconds",
        next_step="round the column to microseconds, store it as int64, or add it to ignore_columns",
    )


def plan_columns(
    schema: pa.Schema, names: list[str], nullable: Iterable[str], settings: ShardSettings
) -> tuple[ColumnPlan, ...]:
    """Return the columns of the shards, in the table's order.

    Args:
        schema: Arrow schema of the columns that are read.
        names: names of all columns of the table.
        nullable: names of columns with missing values.
        settings: settings with the target and the columns to omit.

    Raises:
        SpecError: a column of the settings does not exist, or no column is left.
        DataError: a column's type is not supported.
    """
    _check_names(names, settings)
    missing = frozenset(nullable) - {settings.target_column}  # rows without a target are bad rows
    plans = tuple(
        _plan(field.name, field.type, settings, names, is_nullable=field.name in missing)
        for field in schema
        if field.name not in settings.ignore_columns
    )
    if not plans:
        raise SpecError(
            [_NO_COLUMN_LEFT],
            subject="shard settings",
        )
    return plans


_NO_COLUMN_LEFT = Finding(
    where="ignore_columns",
    what="excludes every column",
    next_step="keep at least one column of the table",
)


def _check_names(names: list[str], settings: ShardSettings) -> None:
    wanted = {
        "target_column": filter(None, [settings.target_column]),
        "text_column": filter(None, [settings.text_column]),
        "ignore_columns": settings.ignore_columns,
        "category_columns": settings.category_columns,
    }
    findings = [
        unknown_column(where, name, names)
        for where, each in wanted.items()
        for name in each
        if name not in names
    ]
    if findings:
        raise SpecError(findings, subject="shard settings")


def unknown_column(where: str, name: str, names: list[str]) -> Finding:
    """Return the finding for a setting with a column that the table does not have."""
    near = near_matches(name, names)
    return Finding(
        where=where,
        what="names a column that the table does not have",
        got=repr(name),
        allowed=", ".join(repr(each) for each in names[:30]),
        next_step=did_you_mean(near[:1]),
    )


def _plan(
    name: str, arrow_type: Any, settings: ShardSettings, names: list[str], *, is_nullable: bool
) -> ColumnPlan:
    role = Role.TARGET if name == settings.target_column else Role.FEATURE
    kind = _kind(name, arrow_type)
    match kind:
        case ColumnKind.CATEGORY:
            dtype = "int32"
        case ColumnKind.TIME:
            dtype = "float64"
        case _:
            dtype = _number_dtype(arrow_type)
    validity = _validity_name(name, names) if is_nullable and dtype in WHOLE_DTYPES else None
    if kind is ColumnKind.CATEGORY:
        validity = None
    return ColumnPlan(name=name, kind=kind, dtype=dtype, role=role, validity=validity)


def content_type(plan: ColumnPlan, arrow_type: pa.DataType) -> str:
    """Return the content type of a column: `category`, `bool`, a kind of time, otherwise its dtype.

    The dtype alone is ambiguous: an int32 may be a category, a float64 a time. Units of times are
    omitted, because all times are stored in seconds.
    """
    match plan.kind:
        case ColumnKind.CATEGORY:
            return plan.kind.value
        case ColumnKind.TIME:
            return str(arrow_type).partition("[")[0].rstrip("3264")
        case _:
            return "bool" if str(arrow_type) == "bool" else plan.dtype


def is_text(arrow_type: Any) -> bool:
    """Return whether an Arrow type is a string of any kind."""
    import pyarrow.types as types

    kinds = (types.is_string, types.is_large_string, types.is_string_view)
    return any(is_kind(arrow_type) for is_kind in kinds)


def _validity_name(name: str, names: list[str]) -> str:
    validity = f"{name}.valid"
    while validity in names:
        validity += "_"
    return validity


def _kind(name: str, arrow_type: Any) -> ColumnKind:
    import pyarrow.types as types

    if types.is_dictionary(arrow_type):
        return _kind(name, arrow_type.value_type)
    if is_text(arrow_type) or types.is_null(arrow_type):
        return ColumnKind.CATEGORY
    if types.is_temporal(arrow_type) and not types.is_interval(arrow_type):
        return ColumnKind.TIME
    if types.is_boolean(arrow_type) or types.is_decimal(arrow_type):
        return ColumnKind.NUMBER
    if types.is_integer(arrow_type) or types.is_floating(arrow_type):
        return ColumnKind.NUMBER
    if str(arrow_type).startswith(("binary", "large_binary", "fixed_size_binary")):
        remedy = "cast it to string if it holds text, with decode(x) in DuckDB or .cast(pa.string()) in pyarrow"
        raise unsupported_type(name, str(arrow_type), remedy=remedy)
    raise unsupported_type(name, str(arrow_type))


def repeated_names(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, in alphabetical order."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def unsupported_type(
    name: str, got: str, *, remedy: str = "flatten it before sharding", place: str | None = None
) -> DataError:
    """Return the error for a column whose type has no encoding; `place` is the file and line of a value."""
    return DataError(
        "a column's type is not supported",
        job_name="sharding",
        where=f"column {name!r}" + (f" in {place}" if place else ""),
        got=got,
        allowed="numbers, booleans, dates and times, strings",
        next_step=f"add the column to ignore_columns, or {remedy}",
    )


def _number_dtype(arrow_type: Any) -> str:
    import pyarrow.types as types

    if types.is_floating(arrow_type):
        return "float64" if arrow_type.bit_width == 64 else "float32"
    if types.is_boolean(arrow_type):
        return "uint8"
    if types.is_decimal(arrow_type):
        return "float64" if arrow_type.scale > 0 else "int64"
    return str(arrow_type)
