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
