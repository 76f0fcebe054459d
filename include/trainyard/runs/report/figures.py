"""Charts of a run's metric events. A chart without data is omitted."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup

from trainyard.runs.report.continuity_view import continuity_of
from trainyard.runs.report.line_chart import (
    Level,
    Point,
    Series,
    legend,
    line_chart,
    smoothed,
)
from trainyard.runs.report.marks import CurveMark, Frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.runs.continuity import Attempt
    from trainyard.runs.record import RunRecord

WIDE = Frame(width=1100, height=340)
HALF = Frame(width=540, height=230)
THIRD = Frame(width=350, height=220)
_SMOOTH_FROM = 100
_NOTHING = Markup("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart with its title and legend; `note` explains how to read it.

    Attributes:
        why_none: the reason if the chart or a part of it has no data.
    """

    title: str
    svg: Markup = _NOTHING
    legend: Markup = _NOTHING
    why_none: str = ""
    note: str = ""
    is_wide: bool = False


def learning_figures(record: RunRecord) -> list[Figure]:
    """Return the charts of loss, learning rate, throughput and gradient norm for which there are events."""
    is_tokens = record.dataset is None or record.dataset.kind != "columns"
    small = (
        ("learning_rate", "Learning rate", "learning rate", "rate"),
        ("tokens_per_second", "Throughput", "tokens/s", "speed"),
        ("samples_per_second", "Throughput", "samples/s", "speed"),
        ("gradient_norm", "Gradient norm", "L2 norm, before clipping", "norm"),
    )
    there = [each for each in small if points_of(record, "step", each[0])]
    frame = THIRD if len(there) > 2 else HALF
    loss = _loss(record, is_tokens=is_tokens)
    singles = [_single(record, *each, frame=frame) for each in there]
    return [loss, *singles] if loss else singles


def points_of(record: RunRecord, event: str, key: str) -> tuple[Point, ...]:
    """Return (step, value) of the events, sorted by step. For a repeated step the last event counts."""
    by_step = {
        float(each["step"]): float(each[key])
        for each in record.history
        if each.get("event") == event
        and isinstance(each.get(key), (int, float))
        and isinstance(each.get("step"), (int, float))
    }
    return tuple(sorted(by_step.items()))


def _loss(record: RunRecord, *, is_tokens: bool) -> Figure | None:
    raw = points_of(record, "step", "loss")
    evals = points_of(record, "eval", "validation_loss")
    is_long = len(raw) >= _SMOOTH_FROM
    train = smoothed(raw, window=len(raw) // 25) if is_long else raw
    series = (
        *_redone(record, raw),
        Series(label="train, each step", points=raw if is_long else (), css="train", is_faint=True),
        Series(label="train (smoothed)" if is_long else "train", points=train, css="train"),
        Series(label="validation", points=evals, css="validation", has_dots=len(evals) <= 60),
    )
    levels = _baseline(record)
    marks = break_marks(record, train)
    is_own = bool(record.conf.get("entry_point"))  # the unit of its loss is unknown
    unit = "" if is_own else f" ({'nats per token' if is_tokens else 'training objective'})"
    svg = line_chart(
        series,
        x_label="optimizer step",
        y_label=f"loss{unit}",
        frame=WIDE,
        levels=levels if (raw or evals) else (),
        marks=marks,
    )
    if not svg:
        return None
    return Figure(
        title="Loss",
        svg=svg,
        legend=legend(series, levels) + (_RESUMED if any(m.back_to for m in marks) else ""),
        note="The unigram baseline uses only the frequency of each token." if levels else "",
        is_wide=True,
    )


_RESUMED = Markup('<span class="key"><i class="swatch ring"></i>resumed here</span>')
_MOST_LABELS = 8
_LEVELS = 4


def break_marks(record: RunRecord, curve: tuple[Point, ...]) -> tuple[CurveMark, ...]:
    """Return a mark per interruption: a line at the last logged step, and a dot at the step of the resume.

    The dots lie on `curve`. A record without measured continuity has one mark per `resume` event of its
    history, at the event's step and without a dot.
    """
    continuity = continuity_of(record)
    if continuity is None:
        return tuple(
            CurveMark(label=f"resumed at step {each['step']}", x=float(each["step"]))
            for each in record.history
            if each.get("event") == "resume" and each.get("step") is not None
        )
    pairs = list(pairwise(e for e in continuity.attempts if e.resumed_at is not None))
    is_crowded = len(pairs) > _MOST_LABELS
    return tuple(
        CurveMark(
            label=str(one.number) if is_crowded else _break_label(one, then),
            x=float(max(one.last_step_logged or 0, then.resumed_at or 0)),
            back_to=float(then.resumed_at or 0),
            back_y=_height(curve, then.resumed_at or 0),
            level=number % _LEVELS,
        )
        for number, (one, then) in enumerate(pairs)
    )


def _height(curve: tuple[Point, ...], step: float) -> float | None:
    """Return the curve's value at its last point up to the step; None before the first point."""
    return next((py for px, py in reversed(curve) if px <= step), None)


def _break_label(one: Attempt, then: Attempt) -> str:
    """Return the label of the mark between two attempts, such as `interrupted at 20, resumed at 16`.

    `one` is the attempt that ended. `then` is the next attempt with a start; its `resumed_at` may be 0.
    """
    ending = {"restarted": "started again", "timed_out": "time limit"}.get(
        one.ended_by, one.ended_by
    )
    return f"{ending} at {one.last_step_logged:,}, resumed at {then.resumed_at:,}"


def _redone(record: RunRecord, kept: tuple[Point, ...]) -> Iterator[Series]:
    """Yield a curve for each attempt whose last steps were redone later.

    The curve has the losses that the attempt logged for these steps. Its first point is the point of the run's
    loss curve (`kept`) just before these steps.
    """
    continuity = continuity_of(record)
    for attempt in continuity.attempts if continuity else ():
        if not attempt.redone_losses:
            continue
        until = attempt.kept_until or 0
        before = [point for point in kept if point[0] <= until][-1:]
        points = (*before, *((float(step), loss) for step, loss in attempt.redone_losses))
        yield Series(label="redone", points=points, css="redone", is_ghost=True)


def _baseline(record: RunRecord) -> tuple[Level, ...]:
    loss = record.dataset.unigram_loss if record.dataset else None
    return () if loss is None else (Level(label=f"unigram baseline {loss:.3f}", value=loss),)


def _single(
    record: RunRecord, key: str, title: str, label: str, css: str, *, frame: Frame
) -> Figure:
    series = (Series(label=title.lower(), points=points_of(record, "step", key), css=css),)
    svg = line_chart(series, x_label="optimizer step", y_label=label, frame=frame, from_zero=True)
    return Figure(title=title, svg=svg)
