"""Page of a comparison, with the style sheet of the other reports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.errors import shortened
from trainyard.runs.comparison.figures import figures
from trainyard.runs.comparison.table import ABSENT, cell_texts
from trainyard.runs.report import views
from trainyard.runs.report.axes import TIMES
from trainyard.runs.report.page_template import assets, page_template
from trainyard.runs.report.views import Tile
from trainyard.units import format_count, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.runs.comparison.findings import FindingRow, Findings
    from trainyard.runs.comparison.record import CellRecord, ComparisonRecord

_FOLDER = Path(__file__).parent
_REPORT = _FOLDER.parent / "report"
_VERDICTS = {
    "succeeded": ("Compared", "good"),
    "incomplete": ("Compared in part", "warn"),
    "failed": ("Failed", "bad"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """Row of the page's table for one training (`CellRecord`): texts by heading, or the reason for its failure."""

    name: str
    cluster: str
    texts: dict[str, str]
    tone: str
    failure: str | None
    job_name: str | None
    cost: str


def render_comparison_html(record: ComparisonRecord, findings: Findings) -> str:
    """Return the comparison as one self-contained HTML document. Every text of the record is escaped."""
    return page_template(_FOLDER / "page.html.jinja").render(
        record=record,
        findings=findings,
        failure=views.error_view(record.failure) if record.failure else None,
        verdict=_VERDICTS[record.status],
        subtitle=_subtitle(record),
        tiles=list(_tiles(record, findings)),
        rows=[_table_row(each, findings.row(each.name)) for each in record.cells],
        figures=figures(record, findings),
        measured_steps=_measured_steps(record),
        strategies=list(_strategies(record)),
        settings=list(_settings(record)),
        css=assets(_REPORT / "page.css", _FOLDER / "comparison.css"),
        script=assets(_REPORT / "page.js"),
    )


def _subtitle(record: ComparisonRecord) -> str:
    conf, parts = record.conf, []
    first = next(iter(record.measured), None)
    if conf.get("model"):
        size = first.measures.num_parameters if first else None
        parts.append(f"{conf['model']}{f', {format_count(size)} parameters' if size else ''}")
    if first and first.measures.global_batch_size:
        parts.append(f"global batch {first.measures.global_batch_size}")
    if conf.get("max_steps"):
        parts.append(f"{conf['max_steps']} steps")
    if conf.get("precision"):
        parts.append(f"precision {conf['precision']}")
    if conf.get("instance_type"):
        parts.append(str(conf["instance_type"]))
    return " · ".join(parts)


def _tiles(record: ComparisonRecord, findings: Findings) -> Iterator[Tile]:
    by_name = {each.name: each for each in record.cells}
    if findings.fastest:
        measures = by_name[findings.fastest].measures
        yield Tile(
            name="Fastest",
            value=findings.fastest,
            note=f"{measures.samples_per_second or 0:,.1f} samples/s",
        )
    cheapest = findings.row(findings.cheapest) if findings.cheapest else None
    if cheapest:
        yield Tile(name="Cheapest epoch", value=cheapest.name, note=format_usd(cheapest.epoch_usd))
    held = [each for each in findings.rows if each.agrees is not None]
    if held:
        far = [each.name for each in held if not each.agrees]
        yield Tile(
            name="Losses agree",
            value=f"{len(held) - len(far)} of {len(held)}",
            note=f"within {record.loss_tolerance:.2g} of {findings.reference}"
            if not far
            else f"not {', '.join(far)}",
            tone="bad" if far else "good",
        )
    yield Tile(
        name="Cells",
        value=f"{len(record.measured)} of {len(record.cells)}",
        note="trained and measured",
        tone="" if record.status == "succeeded" else "bad",
    )
    costs = [each.cost_usd for each in record.cells if each.cost_usd is not None]
    if costs:
        ceiling = record.plan.get("ceiling_usd")
        note = f"{format_usd(ceiling)} at most was planned" if ceiling is not None else ""
        yield Tile(name="Cost of the comparison", value=format_usd(sum(costs)), note=note)


def _table_row(cell: CellRecord, row: FindingRow | None) -> TableRow:
    return TableRow(
        name=cell.name,
        cluster=f"{cell.instance_count} {TIMES} {cell.instance_type}",
        texts=cell_texts(cell, row) if row else {},
        tone="" if row is None or row.agrees is not False else "bad",
        failure=None
        if row
        else f"{cell.status}: {shortened(cell.failure or 'it reported no speed', limit=400)}",
        job_name=cell.job_name,
        cost=ABSENT if cell.cost_usd is None else format_usd(cell.cost_usd),
    )


def _measured_steps(record: ComparisonRecord) -> str:
    counts = sorted({each.measures.steps_measured for each in record.measured})
    return (
        " to ".join(str(each) for each in dict.fromkeys((counts[0], counts[-1]))) if counts else ""
    )


def _strategies(record: ComparisonRecord) -> Iterator[tuple[str, str]]:
    """Yield the name of each strategy, and its entry point, distribution and hyperparameters."""
    for name in dict.fromkeys(each.strategy for each in record.cells):
        cell = next(each for each in record.cells if each.strategy == name)
        own = (
            json.dumps(dict(cell.hyperparameters)) if cell.hyperparameters else "no hyperparameters"
        )
        yield name, f"{cell.entry_point}, {', '.join(cell.distribution)}, {own}"


def _settings(record: ComparisonRecord) -> Iterator[tuple[str, str]]:
    for name, value in sorted(record.conf.items()):
        if value not in (None, [], (), "", {}) and name != "strategies":
            yield name, value if isinstance(value, str) else json.dumps(value, default=str)
    yield from _images(record)


def _images(record: ComparisonRecord) -> Iterator[tuple[str, str]]:
    """Yield (label, text) per image: the label names the cells that trained in it, the text is its URI and digest."""
    cells: dict[tuple[str, str | None], list[str]] = {}
    for each in record.cells:
        if each.image_uri is not None:
            cells.setdefault((each.image_uri, each.image_digest), []).append(each.name)
    for (uri, digest), names in cells.items():
        yield f"image of {', '.join(names)}", f"{uri}, {digest or 'digest not known'}"
