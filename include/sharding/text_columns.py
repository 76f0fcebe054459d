"""Rows of text out of one column of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from include.errors import DataError, Finding, SpecError
from include.sharding.table_schema import unknown_column
from include.sharding.text_rows import TextBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from include.sharding.quarantine import BadRows
    from include.sharding.reading import Table


def text_column_rows(table: Table, column: str, bad_rows: BadRows) -> Iterator[TextBatch]:
    """Yield the texts of a column, one row each; a missing or empty one is a bad row.

    Raises:
        SpecError: the table has no such column.
        DataError: the column does not hold strings, or the source cannot be read.
    """
    if column not in table.schema.names:
        findings: list[Finding] = [unknown_column("text_column", column, table.schema.names)]
        raise SpecError(findings, subject="shard settings")
    kind = table.schema.field(column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(
            "the text column does not hold text",
            job_name="sharding",
            where=f"column {column!r}",
            got=str(kind),
            allowed="strings",
            next_step="name the column of text in text_column",
        )
    name, row_number = "", 0
    for file, batch in table.batches():
        if file.name != name:
            name, row_number = file.name, 0
        texts = batch.batch.column(column).cast(pa.large_binary()).to_pylist()
        for at, text in enumerate(texts, start=row_number + 1):
            if not text:
                bad_rows.add(name, at, f"no text: column {column!r} is empty", "")
        row_number += len(texts)
        yield TextBatch(rows=[text for text in texts if text], done=batch.done)
