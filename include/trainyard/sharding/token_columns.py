"""Rows of token ids from one column of a table, such as `input_ids`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainyard.sharding.token_rows import TokenBatch, good_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.sharding.quarantine import BadRows
    from trainyard.sharding.table_batch import Table
    from trainyard.sharding.token_rows import Vocabulary

_MAX_UINT64 = 2**64 - 1


def token_column_rows(
    table: Table, column: str, bad_rows: BadRows, *, vocabulary: Vocabulary
) -> Iterator[TokenBatch]:
    """Yield the lists of a column, one row each. Missing and empty lists are bad rows.

    Raises a `DataError` if the source cannot be read.
    """
    name, row_number = "", 0
    for file, batch in table.batches():
        if file.name != name:
            name, row_number = file.name, 0
        lists = batch.batch.column(column)
        tokens, ends = _flat(lists)
        tokens, ends = good_rows(
            tokens,
            ends,
            file=name,
            first_row=row_number + 1,
            vocabulary=vocabulary,
            bad_rows=bad_rows,
            holder=f"column {column!r}",
        )
        row_number += len(lists)
        yield TokenBatch(tokens=tokens, ends=ends, done=batch.done)


def _flat(lists: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of all lists, and the end of each list; a missing list is an empty one.

    A missing id is -1, or the largest uint64: both are outside of any vocabulary.
    """
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    values = lists.flatten()
    if values.null_count:
        is_uint64 = pa.types.is_uint64(values.type)
        values = (
            values.fill_null(_MAX_UINT64) if is_uint64 else values.cast(pa.int64()).fill_null(-1)
        )
    return values.to_numpy(zero_copy_only=False), np.cumsum(lengths.astype(np.int64))
