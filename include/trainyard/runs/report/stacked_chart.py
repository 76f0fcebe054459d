"""Stacked areas over steps, and rows of stacked bars, as inline SVG."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from markupsafe import Markup

from trainyard.runs.report.axes import Axis, exact_axis
from trainyard.runs.report.plot_area import (
    axis_labels,
    chart_svg,
    column_grid,
    grid_lines,
    y_axis,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.runs.report.marks import Frame

_ROW, _BAR = 34, 20
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 150, 4, 44
_LEAST_LABEL_SHARE = 0.07


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One part of stacked areas: its name, the CSS class of its color, and a value per x."""

    label: str
    css: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BarRow:
    """One bar: its name, its parts as (label, CSS class, value), and a note at its end."""

    name: str
    parts: tuple[tuple[str, str, float], ...]
    note: str = ""


def stacked_areas(
    xs: Sequence[float], layers: Sequence[Layer], *, x_label: str, y_label: str, frame: Frame
) -> Markup:
    """Return the stacked layers, the first at the bottom; an empty Markup if there are no x values."""
    if not xs:
        return Markup("")
    tops = _tops(layers, len(xs))
    y, frame = y_axis([0.0, *tops[-1]], frame, from_zero=True)
    x = exact_axis(
        min(xs),
        max(xs),
        start=frame.left,
        end=frame.width - frame.right,
        num_ticks=max(3, (frame.width - frame.left) // 80),
    )
    whole = tuple(tick for tick in x.ticks if tick == round(tick))
    x = replace(x, ticks=whole or x.ticks)  # steps are integers
    bottoms = [[0.0] * len(xs), *tops[:-1]]
    areas = (
        _area(layer, xs, below, above, x, y)
        for layer, below, above in zip(layers, bottoms, tops, strict=True)
    )
    crosshair = Markup('<line class="crosshair" y1="{}" y2="{}" x1="-9" x2="-9"/>').format(
        frame.top, frame.height - frame.bottom
    )
    return chart_svg(
        [
            *areas,
            *grid_lines(y, frame),
            *axis_labels(x, y, frame, x_label=x_label, y_label=y_label),
            crosshair,
        ],
        width=frame.width,
        height=frame.height,
        label=f"{y_label} by {x_label}",
        css="stacked",
        data=_hover_data(xs, layers, tops, x, y, x_label),
    )


def stacked_bars(rows: Sequence[BarRow], *, x_label: str, width: int) -> Markup:
    """Return a bar per row, in percent of the row's sum; an empty Markup without rows. Rows of sum 0 are omitted."""
    rows = [row for row in rows if sum(value for _, _, value in row.parts) > 0]
    if not rows:
        return Markup("")
    x = exact_axis(0, 100, start=_LEFT, end=width - _RIGHT, num_ticks=10)
    base = _TOP + len(rows) * _ROW
    body = [
        *column_grid(x, top=_TOP, base=base, label=x_label),
        *(_bar(row, x, _TOP + index * _ROW) for index, row in enumerate(rows)),
    ]
    return chart_svg(body, width=width, height=base + _BOTTOM, label=x_label, css="bars-chart")


def _tops(layers: Sequence[Layer], count: int) -> list[list[float]]:
    sums, found = [0.0] * count, []
    for layer in layers:
        sums = [total + value for total, value in zip(sums, layer.values, strict=True)]
        found.append(sums)
    return found


def _area(
    layer: Layer,
    xs: Sequence[float],
    below: Sequence[float],
    above: Sequence[float],
    x: Axis,
    y: Axis,
) -> Markup:
    """Return the area of one layer; for a single x it is 6 pixels wide."""
    upper = [(x.pixel(at), y.pixel(value)) for at, value in zip(xs, above, strict=True)]
    lower = [(x.pixel(at), y.pixel(value)) for at, value in zip(xs, below, strict=True)]
    if len(xs) == 1:
        upper, lower = _widened(upper), _widened(lower)
    points = " ".join(f"{px:.1f},{py:.1f}" for px, py in [*upper, *reversed(lower)])
    return Markup('<polygon class="area {}" points="{}"/>').format(layer.css, points)


def _widened(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    [(px, py)] = points
    return [(px, py), (px + 6, py)]


def _hover_data(
    xs: Sequence[float],
    layers: Sequence[Layer],
    tops: Sequence[Sequence[float]],
    x: Axis,
    y: Axis,
    x_label: str,
) -> str:
    curves = [
        {
            "label": layer.label,
            "css": layer.css,
            "points": [
                [round(x.pixel(at), 1), round(y.pixel(top), 1), at, float(f"{value:.5g}")]
                for at, top, value in zip(xs, above, layer.values, strict=True)
            ],
        }
        for layer, above in zip(layers, tops, strict=True)
    ]
    return json.dumps({"x": x_label, "curves": curves}, separators=(",", ":"))


def _bar(row: BarRow, x: Axis, top: float) -> Markup:
    total = sum(value for _, _, value in row.parts)
    rect = Markup(
        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}">'
        "<title>{}: {:.1f} %</title></rect>"
    )
    text = Markup('<text class="inside" x="{:.1f}" y="{:.1f}" text-anchor="middle">{:.0f}</text>')
    middle, at = top + _ROW / 2, 0.0
    drawn = [
        Markup('<text class="row" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
            _LEFT - 12, middle + 4.5, row.name
        )
    ]
    for label, css, value in row.parts:
        share = 100 * value / total
        left, right = x.pixel(at), x.pixel(at + share)
        at += share
        if share <= 0:
            continue
        drawn.append(rect.format(css, left, middle - _BAR / 2, right - left, _BAR, label, share))
        if share >= 100 * _LEAST_LABEL_SHARE:
            drawn.append(text.format((left + right) / 2, middle + 4.5, share))
    drawn.append(
        Markup('<text class="note" x="{:.1f}" y="{:.1f}">{}</text>').format(
            x.end + 10, middle + 4.5, row.note
        )
    )
    return Markup("").join(drawn)
