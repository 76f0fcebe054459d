"""Types of a csv file's columns, and conversion of their strings to these types."""

from __future__ import annotations

import logging
import math
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from trainyard.sharding.table_schema import ReplanNeededError, inexact_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainyard.sharding.settings import ShardSettings

log = logging.getLogger(__name__)

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "n/a", "#N/A")
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_WHOLE = r"^[+-]?\d+$"
_CODE = r"^0\d+$"
_LONG_WHOLE = r"^[+-]?\d{16,}$"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"
_WITH_POINT = r"^[+-]?\d+\.\d+$"
_WITH_EXPONENT = r"[eE]"
_NUMERIC_SHARE = 0.9


def column_type(values: pa.Array, settings: ShardSettings, *, name: str) -> pa.DataType:
    """Return the type of a column from a sample of its strings, in which null is a missing value.

    A column is numeric if at least nine in ten of its values are numbers; rows with other values are then
    bad rows. A column with whole numbers that have leading zeros, such as zip codes, is a column of strings.
    A column is boolean if each of its values is `true` or `false`. A column without values has type null. All
    other columns are columns of strings, including those with `true`, `false` and some other text. With
    `text_column`, all columns are columns of strings, because only the text is used.

    Raises:
        DataError: the column has whole numbers beyond 64 bits.
    """
    if settings.text_column or name in settings.category_columns:
        return pa.string()
    known = values.drop_null()
    if not len(known):
        return pa.null()
    known = pc.utf8_trim_whitespace(known)
    if pc.all(pc.is_in(known, pa.array([*TRUE, *FALSE]))).as_py():
        return pa.bool_()
    is_number = pc.match_substring_regex(known, _NUMBER)
    if pc.mean(is_number.cast(pa.float64())).as_py() < _NUMERIC_SHARE:
        return pa.string()
    numbers = known.filter(is_number)
    is_whole = pc.match_substring_regex(numbers, _WHOLE)
    if _has_codes(numbers, name):
        return pa.string()
    if pc.all(is_whole).as_py():
        return _whole_type(numbers, name)
    _warn_of_spellings(numbers, name)
    return pa.float64()


def is_of_type(text: str, kind: pa.DataType) -> bool | None:
    """Return whether a text is a value of a type: a boolean for `bool`, any number for a number type.

    The result is None for a missing value, and for the types `string` and `null`, which every text fits.
    """
    if pa.types.is_string(kind) or pa.types.is_null(kind) or text in MISSING:
        return None
    trimmed = text.strip()
    if pa.types.is_boolean(kind):
        return trimmed in {*TRUE, *FALSE}
    return re.search(_NUMBER, trimmed, re.ASCII) is not None


def are_numbers(values: pa.Array) -> bool:
    """Return whether all strings are numbers; null values do not count.

    `0xFF` and `-nan` are not numbers here, although Arrow's own parser reads them.
    """
    return pc.all(pc.match_substring_regex(values, _NUMBER)).as_py() is not False


def _parsed(
    values: pa.Array, kind: pa.DataType, settings: ShardSettings, *, name: str
) -> tuple[pa.Array, list[int]]:
    """Return strings converted to a type, with null for missing and invalid ones, and the positions of invalid ones.

    Args:
        values: the strings.
        kind: the type.
        settings: determine the type of a column that was empty so far.
        name: the column's name.

    Raises:
        ReplanNeededError: the column is of another type.
        DataError: the column has whole numbers that its type cannot represent.
    """
    if kind == pa.string():
        return values, []
    if pa.types.is_null(kind):
        found = column_type(values, settings, name=name)
        if found != kind:
            raise ReplanNeededError(name, found)
        return pa.nulls(len(values)), []
    trimmed = pc.utf8_trim_whitespace(values)
    if pa.types.is_boolean(kind):
        fits = pc.is_in(trimmed, pa.array([*TRUE, *FALSE]))
        if pc.all(fits.filter(values.is_valid())).as_py() is False:  # as in the sample
            raise ReplanNeededError(name, pa.string())
        parsed = pc.is_in(trimmed, pa.array(TRUE))
    else:
        check_codes(trimmed, name=name)
        fits = pc.match_substring_regex(trimmed, _NUMBER)
        usable = pc.if_else(fits, trimmed, pa.scalar(None, pa.string()))
        if pa.types.is_integer(kind):
            parsed = _whole_numbers(usable, kind, name)
        else:
            check_exact(usable, name=name)
            parsed = usable.cast(kind)
            fits = pc.and_(fits, pc.invert(is_beyond_float(usable)))
    wrong = pc.and_(pc.is_valid(values), pc.invert(pc.fill_null(fits, True)))
    parsed = pc.if_else(pc.is_valid(values), parsed, pa.scalar(None, parsed.type)).cast(kind)
    return parsed, pc.indices_nonzero(wrong).to_pylist()


def typed_rows(
    columns: Mapping[str, pa.Array],
    schema: pa.Schema,
    settings: ShardSettings,
    *,
    plain_numbers: Callable[[pa.Array], pa.Array] | None = None,
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return the valid rows with the types of a schema, and the faults of the invalid rows by row position.

    Args:
        columns: the strings of each column.
        schema: the types.
        settings: settings that determine the type of a column that was empty so far.
        plain_numbers: function that converts numbers with other separators to the form `1234.5`; None if all
            numbers already have this form.

    Raises:
        ReplanNeededError: a column is of another type.
        DataError: a column has whole numbers that its type cannot represent.
    """
    parsed, faults = [], {}
    for field in schema:
        strings = plain = columns[field.name]
        if plain_numbers is not None and field.type != pa.string():
            plain = plain_numbers(strings)
        values, wrong = _parsed(plain, field.type, settings, name=field.name)
        parsed.append(values)
        for at in wrong:
            text = strings[at].as_py()[:50]
            faults[at] = f"wrong type: column {field.name!r} must be {field.type}, got {text!r}"
    batch = pa.RecordBatch.from_arrays(parsed, schema=schema)
    if faults:
        batch = batch.filter(pa.array([at not in faults for at in range(len(batch))], pa.bool_()))
    return batch, dict(sorted(faults.items()))


def check_codes(values: pa.Array, *, name: str) -> None:
    """Check that no string of a numeric column is a whole number with leading zeros.

    Raises:
        ReplanNeededError: there is such a string, and the column must be read as strings.
    """
    if _has_codes(values.drop_null(), name):
        raise ReplanNeededError(name, pa.string())


def _has_codes(values: pa.Array, name: str) -> bool:
    codes = values.filter(pc.match_substring_regex(values, _CODE))
    if not len(codes):
        return False
    log.warning(
        "column %r is read as categories: as numbers its values lose leading zeros, for example %s. "
        "To confirm, add it to category_columns; to read numbers, write them without leading zeros",
        name,
        ", ".join(map(repr, codes.unique()[:3].to_pylist())),
    )
    return True


def _warn_of_spellings(numbers: pa.Array, name: str) -> None:
    """Warn of different texts for the same number, such as 250.0 and 250.00, or 1E3 and 1000."""
    has_exponents = pc.any(pc.match_substring_regex(numbers, _WITH_EXPONENT)).as_py()
    compared = "" if has_exponents else _WITH_POINT
    texts = numbers.filter(pc.match_substring_regex(numbers, compared)).unique()
    known: dict[float, str] = {}
    for text in texts.to_pylist():
        if (other := known.setdefault(float(text), text)) != text:
            log.warning(
                "column %r is read as numbers, and %r and %r are one number. "
                "If they are different codes, add the column to category_columns",
                name,
                other,
                text,
            )
            return


def check_exact(values: pa.Array, *, name: str) -> None:
    """Check that float64 represents each whole number in a column exactly.

    Args:
        values: strings of a column that is read as float64.
        name: name of the column, for the error.

    Raises:
        DataError: a whole number would lose digits.
    """  # noqa: DOC501 - the named function returns a DataError
    long = values.filter(pc.fill_null(pc.match_substring_regex(values, _LONG_WHOLE), False))
    lost = next((text for text in long.to_pylist() if not _is_exact(text)), None)
    if lost is not None:
        raise inexact_numbers(name, lost)


def is_beyond_float(values: pa.Array) -> pa.Array:
    """Return whether each string is a number too large for float64, such as `1e345`, which would become infinity."""
    is_number = pc.match_substring_regex(values, _NUMBER)
    numbers = pc.if_else(is_number, values, pa.scalar(None, pa.string())).cast(pa.float64())
    is_spelled = pc.match_substring(values, "inf", ignore_case=True)
    return pc.fill_null(pc.and_(pc.is_inf(numbers), pc.invert(is_spelled)), False)


def _is_exact(text: str) -> bool:
    number = float(text)
    return math.isfinite(number) and int(text) == int(number)


def _whole_numbers(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    whole = pc.fill_null(pc.match_substring_regex(values, _WHOLE), True)
    if pc.all(whole).as_py() is False:  # None for a block whose rows are all bad
        raise ReplanNeededError(name, pa.float64())
    try:
        return _unsigned(values).cast(kind)
    except pa.ArrowInvalid:
        other = _whole_type(values.drop_null(), name)
        if other == kind or kind == pa.uint64():  # negative numbers beside those of 64 bits
            raise inexact_numbers(name, "numbers below 0 and above 2^63") from None
        raise ReplanNeededError(name, other) from None


def _whole_type(values: pa.Array, name: str) -> pa.DataType:
    for kind in (pa.int64(), pa.uint64()):
        try:
            _unsigned(values).cast(kind)
        except pa.ArrowInvalid:
            continue
        return kind
    raise inexact_numbers(name, max(values.to_pylist(), key=len))


def _unsigned(values: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(values, r"^\+", "")
