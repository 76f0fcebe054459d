"""Rows for token shards, from one column of a table: texts, or lists of token ids such as `input_ids`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainyard.errors import DataError, Finding, SpecError
from trainyard.sharding.table_schema import is_text, unknown_column
from trainyard.sharding.text_rows import TextBatch
from trainyard.sharding.token_rows import TokenBatch, good_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.sharding.quarantine import BadRows
    from trainyard.sharding.table_batch import Table
    from trainyard.sharding.token_rows import Vocabulary

PIECE_BYTES = 4 * 1024**2
_MAX_UINT64 = 2**64 - 1


def text_column_rows(table: Table, column: str, bad_rows: BadRows) -> Iterator[TextBatch]:
    """Yield the texts of a column, one row each. Missing, empty and undecodable texts are bad rows.

    Raises:
        SpecError: the table has no such column.
        DataError: the column does not contain strings, or the source cannot be read.
    """
    if column not in table.schema.names:
        findings: list[Finding] = [unknown_column("text_column", column, table.schema.names)]
        raise SpecError(findings, subject="shard settings")
    kind = table.schema.field(column).type
    if not is_text(kind):
        raise DataError(
            "the text column does not contain text",
            job_name="sharding",
            where=f"column {column!r}",
            got=str(kind),
            allowed="strings; in other formats than csv also lists of whole numbers (token ids)",
            next_step="set text_column to a column with text",
        )
    for file, batch in table.batches():
        start = 0
        for texts in _pieces(batch.batch.column(column)):
            rows = []
            for at, text in enumerate(texts, start=start):
                if fault := _fault(text, column):
                    bad_rows.add(file.name, batch.line_of(at), fault, text or "")
                elif text:
                    rows.append(text)
            start += len(texts)
            yield TextBatch(rows=rows, done=batch.done)


def _fault(text: bytes | None, column: str) -> str | None:
    if not text:
        return f"no text: column {column!r} is empty"
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason}"
    return None


def _pieces(column: pa.Array) -> Iterator[list[bytes | None]]:
    """Yield the texts of a column in lists of about `PIECE_BYTES` of text.

    The division limits the memory. A dictionary column stores a repeated text once, but a yielded list contains
    a copy of the text for each row that has it.
    """
    indices = None
    if pa.types.is_dictionary(column.type):
        column, indices = column.dictionary, column.indices
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    texts = column.cast(pa.large_binary())
    lengths = texts.buffers()[1]
    ends = np.frombuffer(lengths, np.int64, count=len(texts) + 1, offset=8 * texts.offset)
    sizes = np.diff(ends)
    if indices is not None:
        known = pc.fill_null(indices, 0) if len(texts) else indices.slice(0, 0)
        sizes = sizes.take(known.to_pylist()) if len(known) else np.zeros(len(indices), np.int64)
    reached = np.cumsum(sizes)
    marks = np.arange(PIECE_BYTES, int(reached[-1]) if len(reached) else 0, PIECE_BYTES)
    starts = np.unique(np.concatenate([[0], np.searchsorted(reached, marks)])).tolist()
    for start, end in zip(starts, [*starts[1:], len(sizes)], strict=True):
        if indices is None:
            yield texts.slice(start, end - start).to_pylist()
        else:
            yield texts.take(indices.slice(start, end - start)).to_pylist()


def token_column_rows(
    table: Table, column: str, bad_rows: BadRows, *, vocabulary: Vocabulary
) -> Iterator[TokenBatch]:
    """Yield the lists of token ids in a column, one row each.

    Missing and empty lists, and those with an id outside the vocabulary, are bad rows.

    Raises a `DataError` if the source cannot be read.
    """
    for file, batch in table.batches():
        lists = batch.batch.column(column)
        tokens, ends = _flat(lists)
        tokens, ends = good_rows(
            tokens,
            ends,
            file=file.name,
            line_of=batch.line_of,
            vocabulary=vocabulary,
            bad_rows=bad_rows,
            holder=f"column {column!r}",
        )
        yield TokenBatch(tokens=tokens, ends=ends, done=batch.done)


def _flat(lists: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of all lists, and the end of each list; a missing list counts as empty.

    A missing id becomes the largest uint64 if the ids are uint64, otherwise -1. Both values are outside any
    vocabulary.
    """
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    values = lists.flatten()
    if values.null_count:
        is_uint64 = pa.types.is_uint64(values.type)
        values = (
            values.fill_null(_MAX_UINT64) if is_uint64 else values.cast(pa.int64()).fill_null(-1)
        )
    return values.to_numpy(zero_copy_only=False), np.cumsum(lengths.astype(np.int64))
