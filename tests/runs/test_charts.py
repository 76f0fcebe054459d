"""Scales, ticks, curves and timelines say what the numbers say."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import example, given, strategies as st

from tests.runs.sample_run import BEGIN, processing_snapshot, sample_record, training_snapshot
from trainyard.runs.builder import job_record
from trainyard.runs.report.axes import TIMES, exact_axis, linear_axis, nice_ticks
from trainyard.runs.report.line_chart import Level, Series, line_chart, smoothed
from trainyard.runs.report.marks import Frame
from trainyard.runs.report.timeline import job_phases, timeline

FRAME = Frame(width=500, height=200)
VALUES = st.floats(-1e9, 1e9, allow_nan=False)


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-6, 1e7), most=st.integers(2, 12))
def test_ticks_are_within_the_axis_evenly_apart_and_about_as_many_as_asked(
    low: float, span: float, most: int
) -> None:
    ticks = nice_ticks(low, low + span, most)

    assert 1 <= len(ticks) <= most + 2
    assert all(low - span * 1e-3 <= tick <= low + span * 1.001 for tick in ticks)


@pytest.mark.parametrize(
    ("low", "high", "most", "ticks"),
    [
        (0, 400, 4, (0, 100, 200, 300, 400)),
        (0, 1, 4, (0, 0.25, 0.5, 0.75, 1.0)),
        (1.4, 5.1, 8, (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)),
    ],
)
def test_ticks_are_round(low: float, high: float, most: int, ticks: tuple[float, ...]) -> None:
    assert nice_ticks(low, high, most) == pytest.approx(ticks)


@given(st.lists(VALUES, min_size=1, max_size=50))
@example([5e-324])
@example([0.0, 5e-324])
def test_every_value_lies_inside_the_plot(values: list[float]) -> None:
    axis = linear_axis(values, start=100, end=10, num_ticks=5)

    assert all(10 - 1e-6 <= axis.pixel(value) <= 100 + 1e-6 for value in values)


@pytest.mark.parametrize(
    ("high", "label", "factor"),
    [
        (0.002, "1", f"{TIMES}10⁻³"),
        (80_000, "50,000", ""),
        (800_000, "5", f"{TIMES}10⁵"),
        (4.0, "2", ""),
    ],
)
def test_large_and_small_numbers_leave_their_power_to_the_axis_label(
    high: float, label: str, factor: str
) -> None:
    axis = exact_axis(0, high, start=0, end=1, num_ticks=2)

    assert axis.tick_label(axis.ticks[1]) == label
    assert axis.factor == factor


def test_a_chart_without_points_is_nothing() -> None:
    empty = Series(label="a", points=(), css="train")

    assert line_chart((empty,), x_label="x", y_label="y", frame=FRAME) == ""


def test_a_single_point_is_a_dot() -> None:
    svg = line_chart(
        (Series(label="a", points=((5, 1.0),), css="train"),),
        x_label="x",
        y_label="y",
        frame=FRAME,
    )

    assert svg.count("<circle") == 1


def test_a_constant_curve_and_a_far_level_are_both_in_view() -> None:
    svg = line_chart(
        (Series(label="a", points=((0, 2.0), (9, 2.0)), css="train"),),
        x_label="x",
        y_label="y",
        frame=FRAME,
        levels=(Level(label="baseline", value=9.0),),
    )

    heights = [float(y) for y in re.findall(r'class="level baseline"[^>]*y1="([\d.]+)"', svg)]
    assert 0 < heights[0] < FRAME.height
    assert "baseline" in svg


def test_smoothing_has_no_lag() -> None:
    line = tuple((float(x), 2.0 * x) for x in range(50))

    assert all(a == pytest.approx(b) for a, b in zip(smoothed(line, window=9), line, strict=True))
    assert smoothed(((0, 1.0), (1, 2.0), (2, 6.0)), window=3) == ((0, 1.0), (1, 3.0), (2, 6.0))
    assert smoothed((), window=3) == ()


def test_a_training_jobs_phases_are_its_secondary_statuses() -> None:
    phases = job_phases(job_record("train", training_snapshot()), BEGIN + 300)

    assert [phase.css for phase in phases] == [
        "waiting",
        "downloading",
        "working",
        "interrupted",
        "waiting",
        "downloading",
        "working",
        "uploading",
    ]
    assert all(a.end <= b.start for a, b in itertools.pairwise(phases))


def test_a_processing_job_has_two_phases() -> None:
    phases = job_phases(job_record("evaluate", processing_snapshot()), BEGIN + 400)

    assert [(phase.name, phase.end - phase.start) for phase in phases] == [
        ("Starting", 7),
        ("Processing", 38),
    ]


def test_a_job_that_never_started_is_one_wait() -> None:
    snapshot = training_snapshot(transitions=[], started_at=None, ended_at=BEGIN + 90)

    phases = job_phases(job_record("train", snapshot), BEGIN + 300)

    assert [(phase.name, phase.end - phase.start) for phase in phases] == [("Starting", 60)]


def test_the_timeline_has_a_bar_for_each_task_and_each_phase() -> None:
    svg = timeline(sample_record())

    assert svg.count('class="task state-success"') == 5
    assert svg.count('<rect class="phase-') == 8 + 2
    assert "3 min 51 s, try 2" in svg


def test_no_task_no_timeline() -> None:
    assert timeline(sample_record(tasks=[])) == ""
