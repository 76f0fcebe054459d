"""Plot area of a chart: grid, ticks and labels of its axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from trainyard.runs.report.axes import Scale
    from trainyard.runs.report.marks import Frame


def grid_lines(y: Scale, frame: Frame) -> list[Markup]:
    """Return a line per tick of the y axis, and the x axis."""
    row = Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>')
    right, base = frame.width - frame.right, frame.height - frame.bottom
    lines = [row.format(frame.left, right, y.pixel(t), y.pixel(t)) for t in y.ticks]
    return [
        *lines,
        Markup('<line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
            frame.left, right, base, base
        ),
    ]


def axis_labels(x: Scale, y: Scale, frame: Frame, *, x_label: str, y_label: str) -> list[Markup]:
    """Return the labels of the ticks and of both axes."""
    base = frame.height - frame.bottom
    at_x = Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>')
    at_y = Markup('<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>')
    middle = (frame.top + base) / 2
    return [
        *(at_x.format(x.pixel(t), base + 17, x.tick_label(t)) for t in x.ticks),
        *(at_y.format(frame.left - 8, y.pixel(t) + 4, y.tick_label(t)) for t in y.ticks),
        Markup('<text class="label" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
            (frame.left + frame.width - frame.right) / 2, frame.height - 6, _with(x_label, x)
        ),
        Markup(
            '<text class="label" transform="translate(13 {:.1f}) rotate(-90)" '
            'text-anchor="middle">{}</text>'
        ).format(middle, _with(y_label, y)),
    ]


def _with(label: str, axis: Scale) -> str:
    return f"{label} {axis.factor}".strip()
