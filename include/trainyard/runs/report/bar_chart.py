"""Chart with one horizontal bar per row, as inline SVG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from trainyard.runs.report.axes import Axis, exact_axis
from trainyard.runs.report.plot_area import chart_svg, column_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

_BAR, _ROW, _TOP = 14, 28, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: its value in the axis's unit, the text after it, and its tooltip.

    Attributes:
        css: CSS classes of the bar.
        spread: (low, high) of the line over the bar, in the axis's unit; None without such a line.
    """

    label: str
    css: str
    value: float
    text: str
    title: str
    spread: tuple[float, float] | None = None


def bar_chart(
    bars: Sequence[Bar], *, x_label: str, label: str, width: int, reach: float = 0.0
) -> Markup:
    """Return the chart; empty if there are no bars. The x axis extends at least to the value `reach`."""
    if not bars:
        return Markup("")
    left = 26 + 8 * max(len(each.label) for each in bars)
    right = 20 + 8 * max(len(each.text) for each in bars)
    base = _TOP + _ROW * len(bars)
    most = max(reach, *(each.value for each in bars)) or 1.0
    x = exact_axis(0, most, start=left, end=width - right, num_ticks=4)
    body = [
        *column_grid(x, top=_TOP, base=base, label=x_label),
        *(_bar(each, x, _TOP + _ROW * row) for row, each in enumerate(bars)),
    ]
    return chart_svg(body, width=width, height=base + 42, label=label)


def _bar(bar: Bar, x: Axis, top: float) -> Markup:
    middle, end = top + _ROW / 2, x.pixel(bar.value)
    line, after = Markup(""), end
    if bar.spread:
        low, high = (x.pixel(each) for each in bar.spread)
        after = max(end, high)
        line = Markup(
            '<line class="spread" x1="{:.1f}" x2="{:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        ).format(low, high, y=middle)
    return Markup(
        '<g><title>{title}</title>'
        '<text class="row" x="{label:.1f}" y="{text:.1f}" text-anchor="end">{name}</text>'
        '<rect class="{css}" x="{start:.1f}" y="{bar:.1f}" width="{width:.1f}" height="{height}"/>'
        '{line}<text class="note" x="{after:.1f}" y="{text:.1f}">{words}</text></g>'
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
        line=line,
        after=after + 8,
        words=bar.text,
    )  # fmt: skip
