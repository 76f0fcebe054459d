"""Chart of a measure over the number of ranks, as inline SVG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from trainyard.runs.report.axes import NameAxis
from trainyard.runs.report.plot_area import axis_labels, chart_svg, grid_lines, y_axis

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainyard.runs.report.axes import Axis
    from trainyard.runs.report.marks import Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points of one strategy: each is a number of ranks and a value.

    `spans` has (number of ranks, lowest value, highest value) for each point whose range is known, such as the
    speed of the slowest and of the fastest steps.
    """

    label: str
    css: str
    points: tuple[tuple[int, float], ...]
    spans: tuple[tuple[int, float, float], ...] = ()
    is_ideal: bool = False


def rank_chart(curves: Sequence[Curve], *, y_label: str, frame: Frame) -> Markup:
    """Return the chart of the curves, with evenly spaced numbers of ranks; empty if there is no point."""
    ranks = sorted({count for curve in curves for count, _ in curve.points})
    heights = [height for curve in curves for _, height in curve.points]
    heights += [high for curve in curves for _, _, high in curve.spans]
    if not heights:
        return Markup("")
    y, frame = y_axis(heights, frame, from_zero=True)
    x = NameAxis(
        names=tuple(str(each) for each in ranks), start=frame.left, end=frame.width - frame.right
    )
    at = {each: x.pixel(place) for place, each in enumerate(ranks)}
    body = [
        *grid_lines(y, frame),
        *axis_labels(x, y, frame, x_label="ranks", y_label=y_label),
        *(part for curve in curves for part in _curve(curve, at, y)),
    ]
    return chart_svg(body, width=frame.width, height=frame.height, label=f"{y_label} by ranks")


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
