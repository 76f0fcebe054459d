"""Vertical marks in a line chart, such as interruptions. A mark can also shade the steps that were redone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from trainyard.runs.report.axes import Axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Size of a chart and margins around its plot, in pixels."""

    width: int
    height: int
    left: int = 58
    right: int = 14
    top: int = 12
    bottom: int = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveMark:
    """A vertical line with a label, such as an interruption.

    Attributes:
        x: x value of the line.
        back_to: x value from which the run resumed; the range from there to `x` is shaded.
        back_y: y value of the dot at `back_to`.
        level: number of text lines by which the label is lowered, so that labels do not overlap.
    """

    label: str
    x: float
    back_to: float | None = None
    back_y: float | None = None
    level: int = 0


def mark_band(mark: CurveMark, x: Axis, frame: Frame) -> Markup:
    """Return the shaded range from the mark's `back_to` to its `x`; an empty Markup if there is no such range."""
    if mark.back_to is None or mark.back_to >= mark.x:
        return Markup("")
    return Markup('<rect class="band" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(
        x.pixel(mark.back_to),
        frame.top,
        x.pixel(mark.x) - x.pixel(mark.back_to),
        frame.height - frame.bottom - frame.top,
    )


def mark_dot(mark: CurveMark, x: Axis, y: Axis) -> Markup:
    """Return the dot of a mark, at its `back_to` and `back_y`; an empty Markup if one of these is None."""
    if mark.back_to is None or mark.back_y is None:
        return Markup("")
    return Markup('<circle class="dot redone" cx="{:.1f}" cy="{:.1f}" r="4.5"/>').format(
        x.pixel(mark.back_to), y.pixel(mark.back_y)
    )


def mark_line(mark: CurveMark, x: Axis, frame: Frame) -> Markup:
    """Return the vertical line with its label."""
    at = x.pixel(mark.x)
    is_right = at > frame.width - 40 - 6.5 * len(mark.label)
    return Markup(
        '<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{base}"/>'
        '<text class="note" x="{text:.1f}" y="{note}" text-anchor="{anchor}">{label}</text>'
    ).format(
        x=at,
        top=frame.top,
        base=frame.height - frame.bottom,
        text=at - 5 if is_right else at + 5,
        note=frame.top + 10 + 15 * mark.level,
        anchor="end" if is_right else "start",
        label=mark.label,
    )
