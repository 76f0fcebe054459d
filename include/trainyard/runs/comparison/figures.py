"""Charts of a comparison of parallelism strategies. A chart without data is left out, not drawn empty."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainyard.runs.comparison.charts import Curve, rank_chart
from trainyard.runs.report.bar_chart import Bar, bar_chart
from trainyard.runs.report.figures import HALF, WIDE, Figure
from trainyard.runs.report.line_chart import Series, legend, line_chart
from trainyard.units import BYTES_PER_GIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trainyard.runs.comparison.findings import Findings
    from trainyard.runs.comparison.record import CellRecord, ComparisonRecord

COLORS = ("train", "validation", "speed", "rate", "norm", "gold", "sky", "gray")
_BYTES_PER_MIB = 1024**2


def figures(record: ComparisonRecord, findings: Findings) -> list[Figure]:
    """Return the charts of speed, efficiency, cost, memory, communication and losses for which there are measures."""
    colors = colors_of(record)
    made = (
        _speed(record, colors),
        _efficiency(record, findings, colors),
        _epoch_cost(record, findings, colors),
        _bars_of_bytes(
            record, colors, "peak_memory_bytes", "Peak memory of a rank", _peak_note(record)
        ),
        _bars_of_bytes(record, colors, "state_bytes", "Model states of a rank", _STATES),
        _communication(record, colors),
        _losses(record, colors),
    )
    return [each for each in made if each is not None]


def colors_of(record: ComparisonRecord) -> dict[str, str]:
    """Return the CSS class of each strategy by its name.

    The strategies have the order in which the comparison requested them.
    """
    names = list(dict.fromkeys(each.strategy for each in record.cells))
    return {name: COLORS[index % len(COLORS)] for index, name in enumerate(names)}


_STATES = (
    "Parameters, gradients and optimizer states that the rank itself holds after the last step."
)


def _speed(record: ComparisonRecord, colors: dict[str, str]) -> Figure | None:
    def speed(cell: CellRecord) -> float | None:
        return cell.measures.samples_per_second

    curves = list(_curves(record, colors, speed))
    ideal = _ideal(curves)
    spans = {
        each.strategy: tuple(
            (c.ranks, c.measures.slowest, c.measures.fastest)
            for c in record.measured
            if c.strategy == each.strategy and c.measures.slowest and c.measures.fastest
        )
        for each in record.measured
    }
    drawn = [*ideal, *(replace(each, spans=spans.get(each.label, ())) for each in curves)]
    note = "Bars span the slowest to the fastest steps; dashed: ideal scaling of the speed at the fewest ranks."
    return _rank_figure("Speed", drawn, "samples/s, all ranks", note)


def _efficiency(
    record: ComparisonRecord, findings: Findings, colors: dict[str, str]
) -> Figure | None:
    def efficiency(cell: CellRecord) -> float | None:
        row = findings.row(cell.name)
        return 100 * row.efficiency if row else None

    note = (
        "Speed per rank, relative to the strategy's at the comparison's fewest ranks, or to the "
        "reference's if the strategy was not trained with so few."
    )
    return _rank_figure("Scaling efficiency", list(_curves(record, colors, efficiency)), "%", note)


def _epoch_cost(
    record: ComparisonRecord, findings: Findings, colors: dict[str, str]
) -> Figure | None:
    def usd(cell: CellRecord) -> float | None:
        row = findings.row(cell.name)
        return row.epoch_usd if row else None

    note = "At the on-demand price and the measured speed; without start-up."
    curves = list(_curves(record, colors, usd))
    return _rank_figure("Cost of an epoch", curves, "USD, one pass over the data", note)


def _rank_figure(title: str, curves: Sequence[Curve], y_label: str, note: str) -> Figure | None:
    svg = rank_chart(curves, y_label=y_label, frame=HALF)
    shown = tuple(
        Series(label=each.label, css=each.css, points=((0.0, 0.0),))
        for each in curves
        if not each.is_ideal
    )
    return Figure(title=title, svg=svg, legend=legend(shown), note=note) if svg else None


def _curves(
    record: ComparisonRecord, colors: dict[str, str], value: Callable[[CellRecord], float | None]
) -> Iterator[Curve]:
    for name, css in colors.items():
        points = [(c.ranks, value(c)) for c in record.measured if c.strategy == name]
        known = sorted((ranks, height) for ranks, height in points if height is not None)
        if known:
            yield Curve(label=name, css=css, points=tuple(known))


def _ideal(curves: Sequence[Curve]) -> Iterator[Curve]:
    """Yield the curve of ideal speeds; nothing if the curves have fewer than two different numbers of ranks.

    For each curve, the speed at its smallest number of ranks is divided by that number. The ideal speed is the
    highest of these speeds per rank, multiplied by the number of ranks.
    """
    ranks = sorted({count for each in curves for count, _ in each.points})
    per_rank = [each.points[0][1] / each.points[0][0] for each in curves]
    if per_rank and len(ranks) > 1:
        best = max(per_rank)
        points = tuple((count, best * count) for count in ranks)
        yield Curve(label="ideal", css="baseline", points=points, is_ideal=True)


def _peak_note(record: ComparisonRecord) -> str:
    kinds = dict.fromkeys(e.measures.memory_kind for e in record.measured if e.measures.memory_kind)
    return (
        f"Peak over the run, of the rank with the highest one: {', '.join(kinds)}." if kinds else ""
    )


def _bars_of_bytes(
    record: ComparisonRecord, colors: dict[str, str], name: str, title: str, note: str
) -> Figure | None:
    by_cell = {each.name: getattr(each.measures, name) for each in record.measured}
    most = max((max(each) for each in by_cell.values() if each), default=0)
    unit, size = ("GiB", BYTES_PER_GIB) if most >= BYTES_PER_GIB else ("MiB", _BYTES_PER_MIB)
    bars = [
        Bar(
            label=each.name,
            css=f"cell {colors[each.strategy]}",
            value=max(by_cell[each.name]) / size,
            text=format_bytes(max(by_cell[each.name])),
            title=f"{each.name}, by rank: {', '.join(map(format_bytes, by_cell[each.name]))}",
        )
        for each in record.measured
        if by_cell[each.name]
    ]
    svg = bar_chart(bars, x_label=unit, label=title, width=HALF.width)
    return Figure(title=title, svg=svg, note=note) if svg else None


def _communication(record: ComparisonRecord, colors: dict[str, str]) -> Figure | None:
    bars = [
        Bar(
            label=each.name,
            css=f"cell {colors[each.strategy]}",
            value=100 * share,
            text=f"{share:.1%}",
            title=f"{each.name}: {share:.1%} of the steps' time",
        )
        for each in record.measured
        if (share := each.measures.communication_share) is not None and each.ranks > 1
    ]
    title, x_label = "Communication", "% of the steps' time"
    svg = bar_chart(bars, x_label=x_label, label=title, width=HALF.width)
    note = "Share of the profiled steps' time in which a collective runs, with or without computation; mean of ranks."
    return Figure(title=title, svg=svg, note=note) if svg else None


def _losses(record: ComparisonRecord, colors: dict[str, str]) -> Figure | None:
    series = tuple(
        Series(
            label=each.name,
            css=f"{colors[each.strategy]}{'' if place == 0 else ' dashed'}",
            points=tuple((float(step), loss) for step, loss in each.measures.losses),
        )
        for each, place in _places(record)
        if each.measures.losses
    )
    is_text = record.conf.get("model") == "gpt"
    label = f"training loss ({'nats per token' if is_text else 'training objective'})"
    svg = line_chart(series, x_label="optimizer step", y_label=label, frame=WIDE)
    note = "If the curves coincide, the strategies train the same model."
    return (
        Figure(title="Losses", svg=svg, legend=legend(series), note=note, is_wide=True)
        if svg
        else None
    )


def _places(record: ComparisonRecord) -> Iterator[tuple[CellRecord, int]]:
    """Yield each measured cell (strategy and ranks) with its index among its strategy's cells."""
    seen: dict[str, int] = {}
    for each in record.measured:
        yield each, seen.get(each.strategy, 0)
        seen[each.strategy] = seen.get(each.strategy, 0) + 1
