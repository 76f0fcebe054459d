"""What the strings of a csv file stand for: the type of a column, and its values in that type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from include.sharding.table_schema import WiderTypeNeededError

if TYPE_CHECKING:
    from include.sharding.settings import ShardSettings

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "n/a", "#N/A")
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_WHOLE = r"^[+-]?\d{1,18}$"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?([iI]nf|INF|infinity)$"
_NUMERIC_SHARE = 0.9

Wrong = list[tuple[int, str]]
"""Positions and texts of values that are not of their column's type."""


def column_type(values: pa.Array, settings: ShardSettings, *, name: str) -> pa.DataType:
    """Return the type of a column from some of its strings, null where missing.

    A column is of numbers when nine in ten of its values are: the others are then bad rows.
    """
    known = values.drop_null()
    if not len(known) or name in (*settings.category_columns, settings.text_column):
        return pa.string()
    known = pc.utf8_trim_whitespace(known)
    if pc.all(pc.is_in(known, pa.array([*TRUE, *FALSE]))).as_py():
        return pa.bool_()
    is_number = pc.match_substring_regex(known, _NUMBER)
    if pc.mean(is_number.cast(pa.float64())).as_py() < _NUMERIC_SHARE:
        return pa.string()
    is_whole = pc.match_substring_regex(known.filter(is_number), _WHOLE)
    return pa.int64() if pc.all(is_whole).as_py() else pa.float64()


def parse_column(values: pa.Array, kind: pa.DataType, *, name: str) -> tuple[pa.Array, Wrong]:
    """Return strings (null where missing) as values of a type, null also where they are of another, and those.

    Raises:
        WiderTypeNeededError: a column of whole numbers holds a fraction.
    """
    if kind == pa.string():
        return values, []
    trimmed = pc.utf8_trim_whitespace(values)
    if pa.types.is_boolean(kind):
        fits = pc.is_in(trimmed, pa.array([*TRUE, *FALSE]))
        parsed = pc.is_in(trimmed, pa.array(TRUE))
    else:
        fits = pc.match_substring_regex(trimmed, _NUMBER)
        if pa.types.is_integer(kind):
            whole = pc.match_substring_regex(trimmed, _WHOLE)
            if not pc.all(pc.or_(whole, pc.invert(fits))).as_py() and pc.any(fits).as_py():
                raise WiderTypeNeededError(name)
        usable = pc.if_else(fits, trimmed, pa.scalar(None, pa.string()))
        parsed = usable.cast(kind)
    wrong = pc.and_(pc.is_valid(values), pc.invert(pc.fill_null(fits, True)))
    positions = pc.indices_nonzero(wrong).to_pylist()
    parsed = pc.if_else(pc.is_valid(values), parsed, pa.scalar(None, parsed.type)).cast(kind)
    return parsed, [(at, values[at].as_py()) for at in positions]
