"""Parts that charts share: the SVG element, the y axis, the grid, the labels of the axes and the legend."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from markupsafe import Markup

from trainyard.runs.report.axes import linear_axis

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainyard.runs.report.axes import Axis, Scale
    from trainyard.runs.report.marks import Frame


def chart_svg(
    body: Iterable[Markup], *, width: int, height: float, label: str, css: str = "", data: str = ""
) -> Markup:
    """Return the SVG element of a chart.

    Args:
        body: parts of the chart; later ones are drawn over earlier ones.
        width: width in pixels.
        height: height in pixels.
        label: description for screen readers.
        css: additional CSS class.
        data: data of the page's tooltips as JSON text.
    """
    series = Markup(' data-series="{}"').format(data) if data else ""
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {:.0f}" role="img" aria-label="{}"{}>{}</svg>'
    ).format(f"chart {css}".strip(), width, height, label, series, Markup("").join(body))


def y_axis(values: list[float], frame: Frame, *, from_zero: bool = False) -> tuple[Axis, Frame]:
    """Return the y axis of the values, and the frame with a left margin for its tick labels."""
    y = linear_axis(
        values,
        start=frame.height - frame.bottom,
        end=frame.top,
        num_ticks=max(3, (frame.height - frame.top - frame.bottom) // 34),
        from_zero=from_zero,
    )
    return y, replace(frame, left=34 + 7 * max(len(y.tick_label(tick)) for tick in y.ticks))


def grid_lines(y: Scale, frame: Frame) -> list[Markup]:
    """Return a horizontal line for each tick of the y axis, and the line of the x axis itself."""
    row = Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>')
    right, base = frame.width - frame.right, frame.height - frame.bottom
    lines = [row.format(frame.left, right, y.pixel(t), y.pixel(t)) for t in y.ticks]
    return [
        *lines,
        Markup('<line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
            frame.left, right, base, base
        ),
    ]


def column_grid(x: Scale, *, top: float, base: float, label: str) -> list[Markup]:
    """Return a vertical line from `top` to `base` for each tick of the x axis, and the labels of that axis."""
    line = Markup('<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2:.1f}"/>')
    return [
        *(line.format(x.pixel(tick), top, base) for tick in x.ticks),
        *_x_labels(x, base, label),
    ]


def axis_labels(x: Scale, y: Scale, frame: Frame, *, x_label: str, y_label: str) -> list[Markup]:
    """Return the labels of the ticks and of both axes."""
    base = frame.height - frame.bottom
    at_y = Markup('<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>')
    return [
        *_x_labels(x, base, x_label),
        *(at_y.format(frame.left - 8, y.pixel(t) + 4, y.tick_label(t)) for t in y.ticks),
        Markup(
            '<text class="label" transform="translate(13 {:.1f}) rotate(-90)" '
            'text-anchor="middle">{}</text>'
        ).format((frame.top + base) / 2, _with_factor(y_label, y)),
    ]


def block_legend(parts: Iterable[tuple[str, str]]) -> Markup:
    """Return a legend with a colored block for each (CSS class, label)."""
    item = Markup('<span class="key"><i class="swatch block {}"></i>{}</span>')
    return Markup("").join(item.format(css, label) for css, label in parts)


def _x_labels(x: Scale, base: float, label: str) -> list[Markup]:
    tick = Markup('<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>')
    return [
        *(tick.format(x.pixel(each), base + 17, x.tick_label(each)) for each in x.ticks),
        Markup('<text class="label" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>').format(
            (x.start + x.end) / 2, base + 36, _with_factor(label, x)
        ),
    ]


def _with_factor(label: str, axis: Scale) -> str:
    return f"{label} {axis.factor}".strip()
