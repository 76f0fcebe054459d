"""What every table reader yields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBatch:
    """Some rows of a table, and the share of the whole source that was read up to their end (0 to 1)."""

    batch: pa.RecordBatch
    done: float


def widened(schema: pa.Schema, column: str) -> pa.Schema:
    """Return the schema with a column of whole numbers read as floats; any other column stays."""
    import pyarrow as pa

    at = schema.get_field_index(column)
    if not pa.types.is_integer(schema.field(at).type):
        return schema
    return schema.set(at, pa.field(column, pa.float64()))
