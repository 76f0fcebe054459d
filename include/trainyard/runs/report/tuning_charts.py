"""Charts of a search as inline SVG: best so far, objective by hyperparameter, and importance."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from trainyard.runs.report.axes import (
    Axis,
    NameAxis,
    Scale,
    count_axis,
    exact_axis,
    log_axis,
)
from trainyard.runs.report.bar_chart import Bar, bar_chart
from trainyard.runs.report.plot_area import axis_labels, chart_svg, grid_lines, y_axis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.runs.report.marks import Frame

_BEYOND = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One trial in a chart: `kind` is `completed`, `stopped`, `failed` or `best`."""

    number: int
    kind: str
    objective: float | None
    values: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Text of the tooltip."""
        result = "no objective" if self.objective is None else f"{self.objective:.5g}"
        values = ", ".join(f"{name} {_short(value)}" for name, value in self.values.items())
        return f"trial {self.number} ({self.kind}): {result}; {values}"


def best_so_far(dots: Sequence[Dot], *, metric: str, maximize: bool, frame: Frame) -> Markup:
    """Return the chart of objectives by trial number, with the best so far as a line; empty without objectives."""
    shown = _shown(dots, maximize=maximize)
    if not shown:
        return Markup("")
    y, frame = y_axis(shown, frame)
    count = max(each.number for each in dots)
    x = count_axis(count, start=frame.left, end=frame.width - frame.right)
    path: list[tuple[float, float]] = []
    best: float | None = None
    for dot in dots:
        if dot.objective is None or dot.kind == "failed":
            continue
        better = best is None or (dot.objective > best if maximize else dot.objective < best)
        if better:
            path += [] if best is None else [(dot.number, best)]
            best = dot.objective
            path.append((dot.number, best))
    if best is not None:
        path.append((count + 0.5, best))
    points = " ".join(f"{x.pixel(px):.1f},{_within(y, py):.1f}" for px, py in path)
    line = Markup('<polyline class="curve train" points="{}"/>').format(points)
    label = f"{metric}, each trial and the best so far"
    body = [line, *(_dot(each, x.pixel(each.number), y, maximize=maximize) for each in dots)]
    return _chart(
        x, y, frame, body, x_label="trial, in the order of starting", y_label=metric, label=label
    )


def against(
    name: str,
    dots: Sequence[Dot],
    given: Mapping[str, Any],
    *,
    metric: str,
    maximize: bool,
    frame: Frame,
) -> Markup:
    """Return the chart of objectives by the values of one hyperparameter; empty without objectives.

    Args:
        name: name of the hyperparameter.
        dots: trials.
        given: range of the hyperparameter, as in tuning.json.
        metric: name of the objective.
        maximize: whether a higher objective is better.
        frame: size of the chart.
    """
    shown = _shown(dots, maximize=maximize)
    if not shown:
        return Markup("")
    y, frame = y_axis(shown, frame)
    x, index = _value_axis(given, frame), None
    if isinstance(x, NameAxis):
        index = {each: float(place) for place, each in enumerate(x.names)}
    body = []
    for dot in dots:
        value = dot.values.get(name)
        if value is None:
            continue
        at = index.get(str(value)) if index else float(value)
        if at is not None:
            body.append(_dot(dot, x.pixel(at), y, maximize=maximize))
    scale = " (logarithmic)" if given.get("is_logarithmic") else ""
    return _chart(
        x, y, frame, body, x_label=f"{name}{scale}", y_label=metric, label=f"{metric} by {name}"
    )


def importance_bars(shares: Sequence[Mapping[str, Any]], *, width: int) -> Markup:
    """Return a chart with one bar for the importance of each hyperparameter.

    A line over the bar spans the quartiles of the importance over resampled trials.
    """
    bars = []
    for each in shares:
        value, low, high = (100 * each[name] for name in ("share", "low", "high"))
        title = f"{each['name']}: {value:.0f} %, quartiles {low:.0f} and {high:.0f} %"
        bars.append(
            Bar(
                label=each["name"],
                css="share",
                value=value,
                text=f"{value:.0f} %",
                title=title,
                spread=(low, high),
            )
        )
    return bar_chart(
        bars,
        x_label="share of the variance it explains (%)",
        label="importance of each hyperparameter",
        width=width,
        reach=100,
    )


def limit_of(objectives: Sequence[float], *, maximize: bool) -> float:
    """Return the objective beyond which a trial is drawn at the edge, so that a diverged trial does not set the scale.

    It is the median plus eight times the distance from the best to the median. Worked example: losses 2.4, 2.5, 2.6,
    2.7 and 90 give 2.6 + 8 x 0.2 = 4.2.
    """
    best = max(objectives) if maximize else min(objectives)
    middle = median(objectives)
    return middle + _BEYOND * (middle - best)


def _shown(dots: Sequence[Dot], *, maximize: bool) -> list[float]:
    """Return the objectives that set the chart's scale: the known ones up to the limit from `limit_of`.

    Objectives that are worse than this limit are left out. The list is empty without known objectives.
    """
    known = [each.objective for each in dots if each.objective is not None]
    if not known:
        return []
    limit = limit_of(known, maximize=maximize)
    return [each for each in known if (each >= limit if maximize else each <= limit)]


def _value_axis(given: Mapping[str, Any], frame: Frame) -> Scale:
    start, end = frame.left + 8, frame.width - frame.right - 8
    if given["type"] == "categorical":
        return NameAxis(names=tuple(str(each) for each in given["values"]), start=start, end=end)
    low, high = float(given["min_value"]), float(given["max_value"])
    ticks = max(3, (end - start) // 56)
    if given["is_logarithmic"]:
        return log_axis(low, high, start=start, end=end, num_ticks=ticks)
    return exact_axis(low, high, start=start, end=end, num_ticks=ticks)


def _dot(dot: Dot, x: float, y: Axis, *, maximize: bool) -> Markup:
    """Return the mark of a trial.

    It is a circle, a triangle if the trial's objective is outside of the chart's range, or a cross if the trial
    has no objective.
    """
    title = Markup("<title>{}</title>").format(dot.title)
    if dot.objective is None:
        cross = Markup('<path class="trial {}" d="M{x0:.1f} {y0:.1f}l6 6m0 -6l-6 6">{}</path>')
        return cross.format(dot.kind, title, x0=x - 3, y0=min(y.start, y.end) + 2)
    at = y.pixel(dot.objective)
    edge = _within(y, dot.objective)
    if abs(at - edge) > 0.5:
        way = 9 if maximize else -9
        beyond = Markup('<path class="trial {}" d="M{x0:.1f} {y0:.1f}l11 0l-5.5 {way}z">{}</path>')
        return beyond.format(dot.kind, title, x0=x - 5.5, y0=edge - way, way=way)
    circle = Markup('<circle class="trial {}" cx="{:.1f}" cy="{:.1f}" r="{}">{}</circle>')
    return circle.format(dot.kind, x, at, 6 if dot.kind == "best" else 4.5, title)


def _within(y: Axis, value: float) -> float:
    """Return the pixel of a value, limited to the plot."""
    top, bottom = min(y.start, y.end), max(y.start, y.end)
    return min(bottom, max(top, y.pixel(value)))


def _chart(
    x: Scale,
    y: Axis,
    frame: Frame,
    body: Sequence[Markup],
    *,
    x_label: str,
    y_label: str,
    label: str,
) -> Markup:
    area = [*grid_lines(y, frame), *axis_labels(x, y, frame, x_label=x_label, y_label=y_label)]
    return chart_svg([*area, *body], width=frame.width, height=frame.height, label=label)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
