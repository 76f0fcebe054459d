"""Chart with one row per attempt, which shows the attempt's kept and redone steps, as inline SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from trainyard.runs.report.axes import Axis, exact_axis
from trainyard.runs.report.plot_area import block_legend, chart_svg, column_grid

if TYPE_CHECKING:
    from trainyard.runs.continuity import Attempt, Continuity

WIDTH = 1100
MOST_ROWS = 24
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 190, 6, 42
_ROW, _BAR = 26, 14


def attempt_strip(continuity: Continuity) -> Markup:
    """Return the chart of the first 24 attempts; an empty Markup for fewer than two attempts."""
    attempts = continuity.attempts[:MOST_ROWS]
    if len(attempts) < 2:
        return Markup("")
    reach = max(each.last_step_logged or 0 for each in continuity.attempts)
    x = exact_axis(0, max(reach, 1), start=_LEFT, end=WIDTH - _RIGHT, num_ticks=12)
    base = _TOP + len(attempts) * _ROW
    body = [
        *column_grid(x, top=_TOP, base=base, label="optimizer step"),
        *(_row(each, x, _TOP + index * _ROW) for index, each in enumerate(attempts)),
    ]
    return chart_svg(
        body, width=WIDTH, height=base + _BOTTOM, label="steps by attempt", css="strip"
    )


def strip_legend(continuity: Continuity) -> Markup:
    """Return the legend of the chart."""
    redone = [("redone", "redone later")] if continuity.steps_redone else []
    return block_legend([("phase-working", "steps that survived"), *redone])


def _row(attempt: Attempt, x: Axis, top: float) -> Markup:
    middle = top + _ROW / 2
    number = Markup('<text class="row" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
        _LEFT - 14, middle + 4.5, attempt.number
    )
    if attempt.resumed_at is None:
        note = f"no step: {_ENDS.get(attempt.ended_by, attempt.ended_by)} before training began"
        return number + _text(x.start + 4, middle, note)
    last = attempt.last_step_logged or attempt.resumed_at
    kept = attempt.resumed_at + attempt.steps_kept
    end = max(last, kept)
    bars = [
        _bar(x, attempt.resumed_at, kept, middle, "kept"),
        _bar(x, kept, last, middle, "redone"),
    ]
    mark = Markup('<line class="end {}" x1="{x:.1f}" x2="{x:.1f}" y1="{:.1f}" y2="{:.1f}"/>')
    ends = mark.format(
        attempt.ended_by, middle - _BAR / 2 - 3, middle + _BAR / 2 + 3, x=x.pixel(end)
    )
    return number + Markup("").join(bars) + ends + _text(x.pixel(end) + 7, middle, _ending(attempt))


_ENDS = {
    "timed_out": "time limit",
    "restarted": "started again",
    "running": "still running",
}


def _ending(attempt: Attempt) -> str:
    ending = _ENDS.get(attempt.ended_by, attempt.ended_by)
    return f"{ending} · {attempt.steps_redone} redone" if attempt.steps_redone else ending


def _bar(x: Axis, first: int, last: int, middle: float, css: str) -> Markup:
    if last <= first:
        return Markup("")
    return Markup(
        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" rx="2">'
        "<title>steps {} to {}: {}</title></rect>"
    ).format(
        css,
        x.pixel(first),
        middle - _BAR / 2,
        max(1.5, x.pixel(last) - x.pixel(first)),
        _BAR,
        f"{first + 1:,}",
        f"{last:,}",
        css,
    )


def _text(at: float, middle: float, text: str) -> Markup:
    return Markup('<text class="note" x="{:.1f}" y="{:.1f}">{}</text>').format(at, middle + 4, text)
