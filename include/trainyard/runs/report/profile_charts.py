"""Charts of a profile. A chart without data has the reason in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.runs.profile.step_times import PART_NAMES, Part
from trainyard.runs.report.axes import time_unit
from trainyard.runs.report.figures import HALF, WIDE, Figure
from trainyard.runs.report.line_chart import Series, legend, line_chart
from trainyard.runs.report.marks import CurveMark
from trainyard.runs.report.plot_area import block_legend
from trainyard.runs.report.stacked_chart import (
    BarRow,
    Layer,
    stacked_areas,
    stacked_bars,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from trainyard.runs.profile import Profile
    from trainyard.runs.profile.usage import Usage

MOST_RANKS = 16
MOST_CURVES = 8
_CURVES = ("train", "validation", "rate", "speed", "norm")


def steps_chart(profile: Profile) -> Figure:
    """Return the chart of the mean step time of all ranks: steps on the x axis, one stacked area per part."""
    title = "Step time over the steps, mean of all ranks"
    if not profile.bins:
        return Figure(title=title, why_none=profile.why_no_steps, is_wide=True)
    shown = _shown_parts(profile.shares)
    scale, unit = _step_unit(max(each.seconds for each in profile.bins))
    svg = stacked_areas(
        [float(each.first) for each in profile.bins],
        [
            Layer(
                label=f"{PART_NAMES[part]} ({unit})",
                css=f"part-{part}",
                values=tuple(scale * each.parts[part] for each in profile.bins),
            )
            for part in shown
        ],
        x_label="optimizer step",
        y_label=f"time of a step ({unit})",
        frame=WIDE,
    )
    width = profile.bins[0].last - profile.bins[0].first + 1
    return Figure(
        title=title,
        svg=svg,
        legend=part_legend(shown),
        note=f"Each point is the mean of {width} steps." if width > 1 else "",
        is_wide=True,
    )


def shares_chart(summary: Mapping[str, Any]) -> Figure:
    """Return the chart of step time shares by part, one bar per rank, from the profile's summary in report.json."""
    title, steps = "Share of step time, by rank", summary["step_time"]
    if not steps["ranks"] or not steps["shares"]:
        why = steps["why_none"] or "the parts of steps were not timed"
        return Figure(title=title, why_none=why, is_wide=True)
    shown = _shown_parts({Part(name): share for name, share in steps["shares"].items()})
    rows = [
        BarRow(
            name=f"rank {rank['rank']}",
            parts=tuple((PART_NAMES[part], f"part-{part}", rank["parts"][part]) for part in shown),
            note=f"{step_time(rank['mean_seconds'])} a step",
        )
        for rank in steps["ranks"]
    ]
    left_out = len(rows) - MOST_RANKS
    return Figure(
        title=title,
        svg=stacked_bars(rows[:MOST_RANKS], x_label="share of step time (%)", width=WIDE.width),
        legend=part_legend(shown),
        note=f"{left_out} more ranks are in profile.json." if left_out > 0 else "",
        is_wide=True,
    )


def local_chart(profile: Profile) -> Figure:
    """Return the chart of each rank's time before the first collective of a step, with steps on the x axis."""
    title = "Time before the first collective, by rank"
    if profile.why_no_stragglers:
        return Figure(title=title, why_none=profile.why_no_stragglers, is_wide=True)
    waits = profile.waits[:MOST_CURVES]
    scale, unit = _step_unit(max(y for each in waits for _, y in each.points))
    series = tuple(
        Series(
            label=f"rank {each.rank}",
            css=_CURVES[index % len(_CURVES)],
            points=tuple((step, scale * seconds) for step, seconds in each.points),
        )
        for index, each in enumerate(waits)
    )
    svg = line_chart(
        series,
        x_label="optimizer step",
        y_label=f"busy before it ({unit})",
        frame=WIDE,
        from_zero=True,
    )
    return Figure(title=title, svg=svg, legend=legend(series), is_wide=True)


def usage_charts(profile: Profile) -> list[Figure]:
    """Return the charts of the hosts' resource usage over time, one per metric.

    Metrics without data are last, with the reason. Those with the same reason share a chart.
    """
    longest = max(
        (x for each in profile.usages for own in each.series for x, _ in own.points), default=0.0
    )
    scale, unit = time_unit(longest)
    marks = tuple(
        CurveMark(label=f"start {each.attempt}", x=each.seconds / scale)
        for each in profile.attempts[1:]
        if each.seconds is not None
    )
    found = [_usage_chart(each, scale, unit, marks) for each in profile.usages]
    absent: dict[str, list[str]] = {}
    for each in found:
        if not each.svg:
            absent.setdefault(each.why_none, []).append(each.title)
    return [
        *(each for each in found if each.svg),
        *(Figure(title=", ".join(titles), why_none=why) for why, titles in absent.items()),
    ]


def part_legend(parts: Sequence[Part]) -> Markup:
    """Return the legend of the parts of a step."""
    return block_legend([(f"part-{part}", PART_NAMES[part]) for part in parts])


def _shown_parts(shares: Mapping[Part, float]) -> list[Part]:
    return [part for part in Part if shares.get(part, 0.0) > 0] or [Part.OTHER]


def _usage_chart(usage: Usage, scale: float, unit: str, marks: tuple[CurveMark, ...]) -> Figure:
    metric = usage.metric
    if not usage.series:
        return Figure(title=metric.title, why_none=usage.why_none)
    series = tuple(
        Series(
            label=f"{each.host}: mean {each.mean:.3g}, p95 {each.p95:.3g}",
            css=_CURVES[index % len(_CURVES)],
            points=tuple((seconds / scale, value) for seconds, value in each.points),
            gaps=tuple(mark.x for mark in marks),
        )
        for index, each in enumerate(usage.series[:MOST_CURVES])
    )
    svg = line_chart(
        series,
        x_label=f"time since the training's start ({unit})",
        y_label=metric.unit,
        frame=HALF,
        marks=marks,
        from_zero=True,
        reach=metric.reach,
    )
    return Figure(title=metric.title, svg=svg, legend=legend(series), why_none=usage.why_none)


def step_time(seconds: float) -> str:
    """Return a step time with three significant digits: `42.3 ms`, `3.83 s`."""
    scale, unit = _step_unit(seconds)
    return f"{scale * seconds:.3g} {unit}"


def _step_unit(longest: float) -> tuple[float, str]:
    return (1000.0, "ms") if longest < 1 else (1.0, "s")
