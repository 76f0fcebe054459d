"""Line chart as inline SVG. Its colors for light and dark are in the page's style sheet."""

from __future__ import annotations

import json
from dataclasses import dataclass

from markupsafe import Markup, escape

from trainyard.runs.report.axes import Axis, exact_axis
from trainyard.runs.report.marks import CurveMark, Frame, mark_band, mark_dot, mark_line
from trainyard.runs.report.plot_area import axis_labels, chart_svg, grid_lines, y_axis

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve of a chart.

    Attributes:
        label: label in the legend.
        points: (x, y) of the points, in the order of x.
        css: CSS class of the color.
        is_faint: whether the curve is drawn faintly, without legend and tooltip.
        has_dots: whether each point has a dot.
        is_ghost: whether the curve is drawn wide and light below the others, without tooltip.
        gaps: x values at which the curve is interrupted, because nothing was observed.
    """

    label: str
    points: tuple[Point, ...]
    css: str
    is_faint: bool = False
    has_dots: bool = False
    is_ghost: bool = False
    gaps: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A horizontal line with its label, such as a baseline."""

    label: str
    value: float


def line_chart(
    series: tuple[Series, ...],
    *,
    x_label: str,
    y_label: str,
    frame: Frame,
    levels: tuple[Level, ...] = (),
    marks: tuple[CurveMark, ...] = (),
    from_zero: bool = False,
    reach: float | None = None,
) -> Markup:
    """Return the chart; an empty Markup if no series has a point. The y axis includes `reach`."""
    points = [point for each in series for point in each.points]
    if not points:
        return Markup("")
    steps = [point[0] for point in points]
    heights = [point[1] for point in points] + [level.value for level in levels]
    heights += [] if reach is None else [reach]
    y, frame = y_axis(heights, frame, from_zero=from_zero)
    x = exact_axis(
        min(0.0, *steps),
        max(steps),
        start=frame.left,
        end=frame.width - frame.right,
        num_ticks=max(3, (frame.width - frame.left - frame.right) // 62),
    )
    ordered = sorted(series, key=lambda each: not each.is_ghost)
    parts = [
        *(mark_band(mark, x, frame) for mark in marks),
        *grid_lines(y, frame),
        *axis_labels(x, y, frame, x_label=x_label, y_label=y_label),
        *(mark_line(mark, x, frame) for mark in marks),
        *(_level(level, x, y, frame) for level in levels),
        *(_curve(each, x, y) for each in ordered),
        *(mark_dot(mark, x, y) for mark in marks),
        Markup('<line class="crosshair" y1="{}" y2="{}" x1="-9" x2="-9"/>').format(
            frame.top, frame.height - frame.bottom
        ),
    ]
    return chart_svg(
        parts,
        width=frame.width,
        height=frame.height,
        label=f"{y_label} by {x_label}",
        data=_hover_data(series, x, y, x_label),
    )


def _curve(series: Series, x: Axis, y: Axis) -> Markup:
    if not series.points:
        return Markup("")
    faint = " faint" if series.is_faint else " ghost" if series.is_ghost else ""
    polyline = Markup('<polyline class="curve {}{}" points="{}"/>')
    paths = (
        " ".join(f"{x.pixel(px):.1f},{y.pixel(py):.1f}" for px, py in part)
        for part in _unbroken(series)
    )
    line = Markup("").join(polyline.format(series.css, faint, path) for path in paths)
    if not (series.has_dots or len(series.points) == 1):
        return line
    dot = Markup('<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="3"/>')
    dots = (dot.format(series.css, x.pixel(px), y.pixel(py)) for px, py in series.points)
    return line + Markup("").join(dots)


def _unbroken(series: Series) -> list[list[Point]]:
    """Return the curve's points, split at its gaps."""
    stretches: list[list[Point]] = [[]]
    for before, point in zip((None, *series.points), series.points, strict=False):
        if before and any(before[0] < gap <= point[0] for gap in series.gaps):
            stretches.append([])
        stretches[-1].append(point)
    return stretches


def _level(level: Level, x: Axis, y: Axis, frame: Frame) -> Markup:
    height = y.pixel(level.value)
    return Markup(
        '<line class="level baseline" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        '<text class="note baseline" x="{text_x}" y="{text_y:.1f}" text-anchor="end">{label}</text>'
    ).format(
        left=x.start,
        right=x.end,
        y=height,
        text_x=frame.width - frame.right - 4,
        text_y=height - 6 if height > frame.top + 18 else height + 15,
        label=level.label,
    )


def _hover_data(series: tuple[Series, ...], x: Axis, y: Axis, x_label: str) -> str:
    """Return the data of the page's tooltips as JSON text."""
    curves = [
        {
            "label": each.label,
            "css": each.css,
            "points": [
                [round(x.pixel(px), 1), round(y.pixel(py), 1), px, float(f"{py:.5g}")]
                for px, py in each.points
            ],
        }
        for each in series
        if each.points and not each.is_faint and not each.is_ghost
    ]
    return json.dumps({"x": x_label, "curves": curves}, separators=(",", ":"))


def smoothed(points: tuple[Point, ...], *, window: int) -> tuple[Point, ...]:
    """Return the centered moving average over `window` points. The window is narrower at both ends, so there is no lag.

    Worked example: values 1, 2, 6 with window 3 give 1, 3, 6.
    """
    values = [py for _, py in points]
    result = []
    for index, (px, _) in enumerate(points):
        reach = min(window // 2, index, len(points) - 1 - index)
        part = values[index - reach : index + reach + 1]
        result.append((px, sum(part) / len(part)))
    return tuple(result)


def legend(series: tuple[Series, ...], levels: tuple[Level, ...] = ()) -> Markup:
    """Return the legend of the visible curves and levels."""
    item = Markup('<span class="key"><i class="swatch {}"></i>{}</span>')
    shown = [(each.css, each.label) for each in series if each.points and not each.is_faint]
    shown += [("baseline dashed", level.label) for level in levels]
    unique = dict.fromkeys(shown)
    return Markup("").join(item.format(css, escape(label)) for css, label in unique)
