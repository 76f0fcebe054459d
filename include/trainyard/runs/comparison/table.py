"""A comparison as a table: aligned lines for a log, and Parquet with one row per cell."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from trainyard.errors import shortened
from trainyard.units import format_bytes, format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.runs.comparison.findings import FindingRow, Findings
    from trainyard.runs.comparison.record import CellRecord, ComparisonRecord

ABSENT = "-"
HEADINGS = (
    *("cell", "samples/s", "tokens/s", "efficiency", "peak memory/rank", "state/rank"),
    *("communication", "loss apart", "epoch"),
)


def table_lines(record: ComparisonRecord, findings: Findings) -> list[str]:
    """Return the table of all cells as aligned lines; a failed cell has its reason in place of measures."""
    rows = [HEADINGS, *(_texts(each, findings.row(each.name)) for each in record.cells)]
    widths = [
        max(len(row[index]) for row in rows if len(row) > 2) for index in range(len(HEADINGS))
    ]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False))
        for row in rows
    ]


def cell_texts(cell: CellRecord, row: FindingRow) -> dict[str, str]:
    """Return the texts of a measured cell by column heading, with units."""
    measures = cell.measures
    return {
        "samples/s": _number(measures.samples_per_second),
        "tokens/s": _number(measures.units_per_second) if measures.unit == "tokens" else ABSENT,
        "step": ABSENT
        if measures.step_seconds is None
        else f"{1000 * measures.step_seconds:,.0f} ms",
        "efficiency": f"{row.efficiency:.0%}",
        "peak memory/rank": _most(measures.peak_memory_bytes),
        "state/rank": _most(measures.state_bytes),
        "communication": ABSENT
        if measures.communication_share is None
        else f"{measures.communication_share:.1%}",
        "loss apart": _apart(row),
        "epoch": ABSENT if row.epoch_usd is None else format_usd(row.epoch_usd),
    }


def to_parquet(record: ComparisonRecord, findings: Findings) -> bytes:
    """Return the bytes of a Parquet file with one row per training of the comparison (cell), measured or not.

    The column names contain the units.
    """
    import pyarrow as pa  # noqa: PLC0415  # DAG files import this package's neighbors
    import pyarrow.parquet as pq  # noqa: PLC0415

    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in _COLUMNS.items()])
    rows = [_columns(each, findings.row(each.name)) for each in record.cells]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), buffer)
    return buffer.getvalue()


_COLUMNS = {
    **dict.fromkeys(("cell", "strategy", "entry_point", "instance_type"), "string"),
    **dict.fromkeys(("ranks", "instance_count"), "int64"),
    **dict.fromkeys(("job_name", "status", "failure"), "string"),
    **dict.fromkeys(
        (
            *("samples_per_second", "samples_per_second_min", "samples_per_second_max"),
            *("units_per_second", "step_seconds", "speedup", "efficiency"),
        ),
        "float64",
    ),
    **dict.fromkeys(("peak_memory_bytes", "state_bytes"), "int64"),
    **dict.fromkeys(
        (
            *("communication_share", "validation_loss", "loss_difference", "epoch_seconds"),
            *("epoch_usd", "cost_usd"),
        ),
        "float64",
    ),
    "agrees": "bool_",
}


def _columns(cell: CellRecord, row: FindingRow | None) -> Mapping[str, Any]:
    measures = cell.measures
    own = {name: getattr(cell, name, None) for name in _COLUMNS}
    measured = {name: getattr(measures, name) for name in _COLUMNS if hasattr(measures, name)}
    derived = {name: getattr(row, name) for name in _COLUMNS if hasattr(row, name)}
    return {
        **own,
        **measured,
        **derived,
        "cell": cell.name,
        "samples_per_second_min": measures.slowest,
        "samples_per_second_max": measures.fastest,
        "peak_memory_bytes": max(measures.peak_memory_bytes, default=None),
        "state_bytes": max(measures.state_bytes, default=None),
    }


def _texts(cell: CellRecord, row: FindingRow | None) -> tuple[str, ...]:
    if row is None:
        return (
            cell.name,
            f"{cell.status}: {shortened(cell.failure or 'it reported no speed', limit=160)}",
        )
    texts = cell_texts(cell, row)
    return cell.name, *(texts[name] for name in HEADINGS[1:])


def _number(value: float | None) -> str:
    if value is None:
        return ABSENT
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def _most(values: Sequence[int]) -> str:
    return format_bytes(max(values)) if values else ABSENT


def _apart(row: FindingRow) -> str:
    if row.agrees is None:
        return "reference"
    most = max(
        each for each in (row.loss_difference, row.validation_difference) if each is not None
    )
    return f"{most:.2g}" if row.agrees else f"{most:.2g}, too far"
