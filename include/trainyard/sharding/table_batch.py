"""Batches of rows that the readers of tables return, and the types of a table's columns.

In text files, a later row may need another type than the rows before it, so a type can change during reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from trainyard.sharding.source_files import SourceFile

_EXACT = 2.0**53


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBatch:
    """Batch of rows of a table.

    Attributes:
        done: share of the whole source that has been read after these rows, 0 to 1.
        first_line: line on which the first row starts; the number of that row in its file if the format has no lines.
        lines: line of each row; None if the rows are consecutive from `first_line`.
    """

    batch: pa.RecordBatch
    done: float
    first_line: int
    lines: Sequence[int] | None = None

    def line_of(self, row: int) -> int:
        """Return the line of a row of this batch; the row's number in its file if the format has no lines."""
        return self.first_line + row if self.lines is None else self.lines[row]


class Table(Protocol):
    """Files read as one table."""

    names: list[str]

    @property
    def schema(self) -> pa.Schema:
        """Types of the columns that are read."""

    @property
    def nullable(self) -> set[str]:
        """Columns known to have missing values."""

    def replan(self, column: str, kind: pa.DataType | None) -> None:
        """Read a column as the type `kind` from now on.

        If `kind` is None, keep the column's type, but allow missing values.
        """

    def batches(self) -> Iterator[tuple[SourceFile, TableBatch]]:
        """Yield all rows in batches, each with its file; every call starts again at the first row.

        The columns have the types of `schema`.
        """


class ChangingSchema:
    """Column types of files. Later rows may need other types than the first rows.

    Attributes:
        schema: the type in which each column is read.
        nullable: columns known to have missing values.
    """

    def __init__(self, schema: pa.Schema, nullable: set[str]) -> None:
        self.schema, self.nullable = schema, nullable

    def replan(self, column: str, kind: pa.DataType | None) -> None:
        """Read a column as another type from now on; None keeps the type and expects missing values."""
        import pyarrow as pa

        if kind is None:
            self.nullable.add(column)
            return
        at = self.schema.get_field_index(column)
        self.schema = self.schema.set(at, pa.field(column, kind))


def may_be_inexact(column: pa.ChunkedArray) -> bool:
    """Return whether a column of floats has numbers of 2^53 or more, where floats do not represent every integer."""
    import pyarrow.compute as pc

    ends = pc.min_max(column)
    return any(abs(end.as_py() or 0.0) >= _EXACT for end in (ends["min"], ends["max"]))
