"""Checks of schemas and texts, shared by the readers of columnar files (Parquet, Arrow)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from trainyard.errors import DataError
from trainyard.sharding.table_schema import (
    is_text,
    joined_dtype,
    repeated_names,
    unsupported_type,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainyard.sharding.quarantine import BadRows
    from trainyard.sharding.source_files import SourceFile

_PLAIN_EXTENSIONS = ("google:sqlType:", "arrow.r.vctrs")
"""Starts of names with which BigQuery and R annotate columns whose values are plain."""


def check_names(file: SourceFile, names: list[str]) -> None:
    """Check that the names of columns are unique.

    Raises:
        DataError: a name occurs twice.
    """
    if twice := repeated_names(names):
        raise DataError(
            "a file has two columns of the same name",
            job_name="sharding",
            where=file.name,
            got=", ".join(map(repr, twice)),
            allowed="a different name for each column",
            next_step="rename one of them, or add the name to ignore_columns",
        )


def undecodable_name(file: SourceFile, error: UnicodeDecodeError) -> DataError:
    """Return the error for a file in which the name of a column is not UTF-8."""
    return DataError(
        "the name of a column is not UTF-8",
        job_name="sharding",
        where=file.name,
        got=str(error.object),
        allowed="names in UTF-8, as the formats require",
        next_step="rename the column with the tool that wrote the file, or select the other files with a glob",
    )


def joined_schema(
    file: SourceFile, schema: pa.Schema, *, wanted: pa.Schema, known: Iterable[str] | None
) -> pa.Schema:
    """Return the wanted columns, with types that also hold this file's values without loss.

    Args:
        file: the file.
        schema: columns of the file.
        wanted: the columns that are read, with the types of the files so far.
        known: further columns that the file may have; None allows any.

    Raises:
        DataError: the file lacks a column, has a column of another type, or has further columns.
    """
    _check_no_extensions(schema, wanted.names)
    added = [] if known is None else sorted({*schema.names} - {*wanted.names, *known})
    if added:
        raise DataError(
            "a file has columns that the first file does not have",
            job_name="sharding",
            where=file.name,
            got=", ".join(f"{name!r} ({schema.field(name).type})" for name in added),
            allowed=", ".join(map(repr, wanted.names)),
            next_step="give all files the same schema, or select some files with a glob",
        )
    found = {field.name: plain_type(field.type) for field in schema}
    joined = {
        field.name: joined_type(field.type, found[field.name])
        for field in wanted
        if field.name in found
    }
    different = [
        f"{field.name!r} ({found.get(field.name) or 'missing'})"
        for field in wanted
        if joined.get(field.name) is None
    ]
    if different:
        raise DataError(
            "a file's columns differ from those of the first file",
            job_name="sharding",
            where=file.name,
            got=", ".join(different),
            allowed=", ".join(f"{field.name!r} ({field.type})" for field in wanted),
            next_step="give all files the same schema, or select some files with a glob",
        )
    return pa.schema(list(joined.items()))


def joined_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type of a column whose files have these two types; None if no type holds the values of both.

    Two types of text, of times, of decimals or of lists fit together even if their width, unit or scale differs: the
    values of each file are read by the file's own type, not by the returned one.
    """
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if is_text(one) and is_text(other):
        return other if pa.types.is_string_view(other) else one
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        return one if one.scale > 0 else other
    if holds_token_ids(one) and holds_token_ids(other):
        return one
    if any(is_kind(one) and is_kind(other) for is_kind in (*_TIMES, _is_instant, _is_local)):
        return one
    dtype = joined_dtype([_dtype_name(one), _dtype_name(other)])
    return None if dtype is None else pa.from_numpy_dtype(np.dtype(dtype))


def _dtype_name(kind: pa.DataType) -> str:
    return f"float{kind.bit_width}" if pa.types.is_floating(kind) else str(kind)


_TIMES = (pa.types.is_date, pa.types.is_time, pa.types.is_duration)


def _is_instant(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _is_local(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is None


def wanted_schema(schema: pa.Schema, *, ignored: frozenset[str], only: str | None) -> pa.Schema:
    """Return the columns of a file that are read. A dictionary column gets the type of its values.

    Raises:
        DataError: a column has an extension type.
    """
    columns = [only] if only is not None and only in schema.names else schema.names
    names = [name for name in columns if name not in ignored]
    _check_no_extensions(schema, names)
    return pa.schema([(name, plain_type(schema.field(name).type)) for name in names])


def _check_no_extensions(schema: pa.Schema, names: list[str]) -> None:
    """Check that no column has an extension type, such as UUID.

    If no package has registered the type in this process, Arrow returns its storage type, and names the extension in
    the field's metadata.

    Raises:
        DataError: one of the named columns has an extension type.
    """  # noqa: DOC501 - the named function returns a DataError
    for field in (field for field in schema if field.name in names):
        if isinstance(field.type, pa.BaseExtensionType):
            extension = field.type.extension_name
        else:
            extension = (
                (field.metadata or {}).get(b"ARROW:extension:name", b"").decode(errors="replace")
            )
        if extension and not extension.startswith(_PLAIN_EXTENSIONS):
            raise unsupported_type(
                field.name,
                f"extension<{extension}>",
                remedy="convert it before sharding, for example to text: "
                f"CAST({field.name} AS VARCHAR) in DuckDB, .astype(str) in pandas",
            )


def with_types(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return the batch, with each column of type null converted to its type in `wanted`.

    All values of such a column are missing.
    """
    for field in wanted:
        is_null = pa.types.is_null(batch.schema.field(field.name).type)
        if is_null and not pa.types.is_null(field.type):
            at = batch.schema.get_field_index(field.name)
            batch = batch.set_column(at, field.name, pa.nulls(batch.num_rows, field.type))
    return batch


def decodable_rows(
    file: SourceFile, batch: pa.RecordBatch, first: int, *, texts: list[str], bad_rows: BadRows
) -> pa.RecordBatch:
    """Return the rows whose strings are UTF-8. The formats require it, but not all writers comply.

    Args:
        file: file of the rows.
        batch: the rows.
        first: number of the first row in its file.
        texts: columns of strings.
        bad_rows: collects the other rows.
    """
    faults: dict[int, str] = {}
    for name in texts:
        column = batch.column(name)
        values = column.dictionary if pa.types.is_dictionary(column.type) else column
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            stored = column.cast(pa.large_binary()).to_pylist()
            faults |= {at: name for at, text in enumerate(stored) if text and not _is_utf8(text)}
    if not faults:
        return batch
    for at, name in sorted(faults.items()):
        bad_rows.add(file.name, first + at, f"not UTF-8: column {name!r}", "")
    good = batch.filter(pa.array([at not in faults for at in range(batch.num_rows)]))
    for name in set(faults.values()):  # a dictionary would keep the bad strings
        at, column = good.schema.get_field_index(name), good.column(name)
        if pa.types.is_dictionary(column.type):
            good = good.set_column(at, name, column.dictionary_decode())
    return good


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the value type of an Arrow dictionary type; return any other type unchanged."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_string(kind: pa.DataType) -> bool:
    """Return whether a type is `string` or `large_string`, but not `string_view`."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def holds_token_ids(kind: pa.DataType) -> bool:
    """Return whether the type is a list of integers."""
    is_list = any(is_kind(kind) for is_kind in _LISTS)
    return is_list and bool(pa.types.is_integer(kind.value_type))


_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def text_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the string columns."""
    return [field.name for field in schema if is_text(field.type)]


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
