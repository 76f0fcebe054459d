"""Charts of a comparison as inline SVG: measures over the number of ranks, and one bar per training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from markupsafe import Markup

from trainyard.runs.report.axes import Axis, NameAxis, exact_axis, linear_axis
from trainyard.runs.report.marks import Frame
from trainyard.runs.report.plot_area import axis_labels, grid_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BAR, _ROW = 14, 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points of one strategy over the number of ranks. `spans` has the minimum and maximum of each point, if known."""

    label: str
    css: str
    points: tuple[tuple[int, float], ...]
    spans: tuple[tuple[int, float, float], ...] = ()
    is_ideal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Bar of one training (cell): its value in the axis's unit, and the text after the bar."""

    label: str
    css: str
    value: float
    text: str
    title: str


def rank_chart(curves: Sequence[Curve], *, y_label: str, frame: Frame) -> Markup:
    """Return the chart of the curves, with evenly spaced numbers of ranks; empty if there is no point."""
    ranks = sorted({count for curve in curves for count, _ in curve.points})
    heights = [height for curve in curves for _, height in curve.points]
    heights += [high for curve in curves for _, _, high in curve.spans]
    if not heights:
        return Markup("")
    y = linear_axis(
        heights,
        start=frame.height - frame.bottom,
        end=frame.top,
        num_ticks=max(3, (frame.height - frame.top - frame.bottom) // 34),
        from_zero=True,
    )
    frame = replace(frame, left=34 + 7 * max(len(y.tick_label(tick)) for tick in y.ticks))
    x = NameAxis(
        names=tuple(str(each) for each in ranks), start=frame.left, end=frame.width - frame.right
    )
    at = {each: x.pixel(place) for place, each in enumerate(ranks)}
    body = [
        *grid_lines(y, frame),
        *axis_labels(x, y, frame, x_label="ranks", y_label=y_label),
        *(part for curve in curves for part in _curve(curve, at, y)),
    ]
    return _svg(frame, f"{y_label} by ranks", body)


def bar_chart(bars: Sequence[Bar], *, x_label: str, width: int) -> Markup:
    """Return the chart with one bar per cell; empty if there are no bars."""
    if not bars:
        return Markup("")
    left, top = 26 + 8 * max(len(each.label) for each in bars), 6
    right = 20 + 8 * max(len(each.text) for each in bars)
    base = top + _ROW * len(bars)
    most = max(each.value for each in bars) or 1.0
    x = exact_axis(0, most, start=left, end=width - right, num_ticks=4)
    frame = Frame(width=width, height=base + 42, left=left, right=right, top=top)
    grid = Markup('<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{}" y2="{}"/>')
    tick = Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>')
    label = f"{x_label} {x.factor}".strip()
    body = [
        *(grid.format(top, base, x=x.pixel(each)) for each in x.ticks),
        *(tick.format(x.pixel(each), base + 17, x.tick_label(each)) for each in x.ticks),
        *(_bar(each, x, top + _ROW * row) for row, each in enumerate(bars)),
        Markup('<text class="label" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
            (left + width - right) / 2, base + 36, label
        ),
    ]
    return _svg(frame, x_label, body)


def _curve(curve: Curve, at: dict[int, float], y: Axis) -> Iterator[Markup]:
    path = " ".join(f"{at[count]:.1f},{y.pixel(height):.1f}" for count, height in curve.points)
    kind = f"{curve.css} ideal" if curve.is_ideal else curve.css
    yield Markup('<polyline class="curve {}" points="{}"/>').format(kind, path)
    if curve.is_ideal:
        return
    span = Markup('<line class="span {}" x1="{x:.1f}" x2="{x:.1f}" y1="{:.1f}" y2="{:.1f}"/>')
    for count, low, high in curve.spans:
        yield span.format(curve.css, y.pixel(low), y.pixel(high), x=at[count])
    dot = Markup('<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="4"><title>{}</title></circle>')
    for count, height in curve.points:
        title = f"{curve.label}, {count} ranks: {height:,.4g}"
        yield dot.format(curve.css, at[count], y.pixel(height), title)


def _bar(bar: Bar, x: Axis, top: float) -> Markup:
    middle, end = top + _ROW / 2, x.pixel(bar.value)
    return Markup(
        '<g><title>{title}</title>'
        '<text class="row" x="{label:.1f}" y="{text:.1f}" text-anchor="end">{name}</text>'
        '<rect class="cell {css}" x="{start:.1f}" y="{bar:.1f}" width="{width:.1f}" height="{height}"/>'
        '<text class="note" x="{after:.1f}" y="{text:.1f}">{words}</text></g>'
    ).format(
        title=bar.title,
        label=x.start - 8,
        text=middle + 4.5,
        name=bar.label,
        css=bar.css,
        start=x.start,
        bar=middle - _BAR / 2,
        width=max(1.0, end - x.start),
        height=_BAR,
        after=end + 8,
        words=bar.text,
    )  # fmt: skip


def _svg(frame: Frame, label: str, body: Sequence[Markup]) -> Markup:
    return Markup(
        '<svg class="chart compared" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">{body}</svg>'
    ).format(w=frame.width, h=frame.height, label=label, body=Markup("").join(body))
