"""Section on the hyperparameter search in a run's report page.

It has the winner and the reasons for it, the trials, the importance of the hyperparameters, the cost, and
the reason for which the search ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from trainyard.job_status import JobStatus
from trainyard.runs.report.figures import HALF, THIRD, WIDE, Figure
from trainyard.runs.report.marks import Frame
from trainyard.runs.report.tuning_charts import Dot, against, best_so_far, importance_bars
from trainyard.runs.report.views import Tile
from trainyard.units import format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trainyard.runs.record import RunRecord

_NONE = "\N{EN DASH}"
MOST_ROWS = 50
_TONES = {"best": "good", "completed": "", "stopped": "warn", "failed": "bad"}
_ENDED = {
    "budget": "the next trials would have crossed its budget",
    "time": "it reached its time limit",
    "person": "it was stopped by a person",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView:
    """Row of one trial in the table."""

    number: int
    job: str
    state: str
    tone: str
    objective: str
    behind: str
    values: tuple[str, ...]
    time: str
    cost: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRow:
    """One hyperparameter of the final training, and the origin of its value."""

    name: str
    value: str
    origin: str
    tone: str
    instead_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningView:
    """Search section.

    Attributes:
        names: searched hyperparameters.
        search_name: name of the search, which is omitted from the names of its trials.
        num_hidden: number of trials that are in tuning.json but not in the table.
        chosen: hyperparameters of the final training that are not defaults.
        others: the other hyperparameters.
    """

    sentence: str
    tone: str
    reasons: tuple[str, ...]
    numbers: tuple[Tile, ...]
    figures: tuple[Figure, ...]
    names: tuple[str, ...]
    metric: str
    search_name: str
    trials: tuple[TrialView, ...]
    num_hidden: int
    chosen: tuple[ChosenRow, ...]
    others: tuple[ChosenRow, ...]


def tuning_view(record: RunRecord) -> TuningView | None:
    """Return the section; None for a run without a search or without trials."""
    found = record.tuning
    if found is None or not found["trials"]:
        return None
    result, search = found["result"], found["search"]
    maximize = search["objective_type"] == "Maximize"
    dots, names = _dots(found), tuple(search["ranges"])
    ranked = _ranked(found, dots, maximize=maximize)
    chosen = [_chosen(each) for each in found["hyperparameters"]]
    return TuningView(
        sentence=_sentence(found),
        tone="bad" if result is None else "good" if result["is_complete"] else "warn",
        reasons=tuple(_reasons(found, maximize=maximize)) if result else (),
        numbers=tuple(_numbers(found)),
        figures=tuple(_figures(found, dots, maximize=maximize)),
        names=names,
        metric=search["metric_name"],
        search_name=result["tuning_job_name"] if result else "",
        trials=tuple(_row(dot, trial, found) for dot, trial in ranked[:MOST_ROWS]),
        num_hidden=max(0, len(ranked) - MOST_ROWS),
        chosen=tuple(each for each in chosen if each.origin != "default"),
        others=tuple(each for each in chosen if each.origin == "default"),
    )


def _sentence(found: Mapping[str, Any]) -> str:
    result, metric = found["result"], found["search"]["metric_name"]
    if result is None:
        return "The search found no winner"
    best, number = result["best"], _number_of(found, result["best"]["training_job_name"])
    won = (
        f"Trial {number} of {len(found['trials'])} won"
        if number
        else "An earlier search's trial won"
    )
    far = "" if result["is_complete"] else ", the best so far"
    return f"{won} with {metric} {best['value']:.4g}{far}"


def _reasons(found: Mapping[str, Any], *, maximize: bool) -> Iterator[str]:
    """Yield the reasons for the winner, one sentence each."""
    result, metric = found["result"], found["search"]["metric_name"]
    best, others = result["best"], _others(found)
    if others:
        runner_up = (max if maximize else min)(others)
        side = "above" if maximize else "below"
        lead = abs(runner_up - best["value"])
        share = f" ({lead / abs(runner_up):.1%})" if runner_up else ""
        yield (
            f"Its {metric} of {best['value']:.5g} is {lead:.3g}{share} {side} the next best trial's, and "
            f"{abs(median(others) - best['value']):.3g} {side} the median of the other {len(others)}."
        )
    shares = found["importance"]["shares"]
    if shares:
        first = shares[0]
        value = best["tuned_hyperparameters"].get(first["name"])
        yield (
            f"{first['name']} mattered most: it alone explains {first['share']:.0%} of the variance between trials"
            + (f"; the winner has {_text(value)}." if value is not None else ".")
        )
    elif found["importance"]["why_unknown"]:
        yield f"The importance of the hyperparameters is not known: {found['importance']['why_unknown']}."
    steps, whole = found["search"]["trial_steps"], found["search"]["max_steps"]
    if steps < whole:
        yield (
            f"Trials took {steps:,} steps, the final training takes {whole:,}: the best short trial need not be the "
            "best long one."
        )


def _numbers(found: Mapping[str, Any]) -> Iterator[Tile]:
    search, result = found["search"], found["result"]
    states = [_kind(trial, winner=None) for trial in found["trials"]]
    is_pruned = any(_is_pruned(trial) for trial in found["trials"])
    notes = [
        f"{states.count(kind)} {word}"
        for kind, word in (
            ("completed", "completed"),
            ("stopped", "short" if is_pruned else "stopped early"),
            ("failed", "failed"),
        )
        if kind in states
    ]
    yield Tile(name="Trials", value=f"{len(states)} of {search['max_jobs']}", note=", ".join(notes))
    at_once = f"{search['max_parallel_jobs']} at a time, {search['trial_steps']:,} steps each"
    yield Tile(name="Strategy", value=search["strategy"], note=at_once)
    if result is None:
        return
    ended = result["ended_by"]
    is_whole = len(states) >= search["max_jobs"]
    itself = "all its trials were run" if is_whole else "its criteria were met"
    yield Tile(
        name="Ended by",
        value="the search itself" if ended == "service" else f"its {ended}",
        note=_ENDED.get(ended, itself),
        tone="" if result["is_complete"] else "bad",
    )
    cost = [f"estimated at most {format_usd(result['estimated_cost_usd'])}"]
    if result["estimated_cost_usd"] is None:
        cost = []
    if result["budget_usd"] is not None:
        cost.append(f"budget {format_usd(result['budget_usd'])}")
    yield Tile(
        name="Cost of the search", value=format_usd(result["cost_usd"]), note=", ".join(cost)
    )


def _figures(found: Mapping[str, Any], dots: Sequence[Dot], *, maximize: bool) -> Iterator[Figure]:
    search, metric = found["search"], found["search"]["metric_name"]
    shares = found["importance"]["shares"]
    y_label = f"{metric} ({search['unit']})"
    wide = Frame(width=WIDE.width, height=280)
    curve = best_so_far(dots, metric=y_label, maximize=maximize, frame=wide)
    if curve:
        note = "A triangle at the edge: a trial beyond the scale. A cross: a trial without an objective."
        has_odd = "<path" in curve
        yield Figure(
            title="Best so far",
            svg=curve,
            legend=_legend(dots),
            note=note if has_odd else "",
            is_wide=True,
        )
    frame = THIRD if len(search["ranges"]) + bool(shares) > 2 else HALF
    for name, given in search["ranges"].items():
        svg = against(
            name, dots, given, metric=y_label.rpartition(":")[2], maximize=maximize, frame=frame
        )
        if svg:
            yield Figure(title=name, svg=svg)
    if shares:
        yield Figure(
            title="Importance",
            svg=importance_bars(shares, width=frame.width),
            note=f"Functional ANOVA over {found['importance']['num_trials']} trials; the line spans the quartiles over "
            "resampled trials.",
        )


_KEY = Markup('<span class="key"><i class="swatch trial {}"></i>{}</span>')


def _legend(dots: Sequence[Dot]) -> Markup:
    """Return the legend of the kinds of trials that occur."""
    words = {"best": "winner", "stopped": "short or stopped early"}
    kinds = [kind for kind in _TONES if any(each.kind == kind for each in dots)]
    keys = Markup("").join(_KEY.format(kind, words.get(kind, kind)) for kind in kinds)
    return keys + Markup('<span class="key"><i class="swatch train"></i>best so far</span>')


def _dots(found: Mapping[str, Any]) -> list[Dot]:
    winner = found["result"]["best"]["training_job_name"] if found["result"] else None
    return [
        Dot(
            number=number,
            kind=_kind(trial, winner=winner),
            objective=trial["objective"],
            values=trial["tuned_hyperparameters"],
        )
        for number, trial in enumerate(found["trials"], 1)
    ]


def _kind(trial: Mapping[str, Any], *, winner: str | None) -> str:
    if trial["training_job_name"] == winner:
        return "best"
    if trial["status"] == JobStatus.COMPLETED:
        return "stopped" if _is_pruned(trial) else "completed"
    return "failed" if trial["status"] == JobStatus.FAILED else "stopped"


def _is_pruned(trial: Mapping[str, Any]) -> bool:
    """Return whether the trial was planned with fewer steps than others, and completed them."""
    return bool(trial["status"] == JobStatus.COMPLETED and trial["is_early_stopped"])


def _ranked(
    found: Mapping[str, Any], dots: Sequence[Dot], *, maximize: bool
) -> list[tuple[Dot, Mapping[str, Any]]]:
    """Return the trials from best to worst; failed ones and those without an objective are last."""
    sign = -1 if maximize else 1

    def place(pair: tuple[Dot, Mapping[str, Any]]) -> tuple[bool, float]:
        dot = pair[0]
        is_out = dot.objective is None or dot.kind == "failed"
        return is_out, dot.number if dot.objective is None else sign * dot.objective

    return sorted(zip(dots, found["trials"], strict=True), key=place)


def _row(dot: Dot, trial: Mapping[str, Any], found: Mapping[str, Any]) -> TrialView:
    best = found["result"]["best"]["value"] if found["result"] else None
    behind = None if best is None or dot.objective is None else abs(dot.objective - best)
    started, ended = trial["started_at"], trial["ended_at"]
    cut = "stopped early" if trial["is_early_stopped"] else "stopped"
    states = {"best": "winner", "stopped": "short" if _is_pruned(trial) else cut}
    return TrialView(
        number=dot.number,
        job=_short_name(trial["training_job_name"], found),
        state=states.get(dot.kind, dot.kind),
        tone=_TONES[dot.kind],
        objective=_NONE if dot.objective is None else f"{dot.objective:.5g}",
        behind=f"{behind:.3g}" if behind and dot.kind != "best" else "",
        values=tuple(_text(dot.values.get(name)) for name in found["search"]["ranges"]),
        time=_NONE if started is None or ended is None else format_duration(ended - started),
        cost=format_usd(trial["cost_usd"]),
        note="; ".join(filter(None, (trial["definition"], trial["failure_reason"]))),
    )


def _short_name(job: str, found: Mapping[str, Any]) -> str:
    """Return the name of a trial's job without its prefix, which is the name of the search."""
    search = found["result"]["tuning_job_name"] if found["result"] else ""
    return job.removeprefix(f"{search}-") if search else job


def _others(found: Mapping[str, Any]) -> list[float]:
    """Return the objectives of all trials except the winner and those that failed or were stopped early."""
    winner = found["result"]["best"]["training_job_name"]
    return [
        trial["objective"]
        for trial in found["trials"]
        if trial["training_job_name"] != winner
        and trial["objective"] is not None
        and trial["status"] != JobStatus.FAILED
        and not trial["is_early_stopped"]
    ]


def _number_of(found: Mapping[str, Any], job: str) -> int | None:
    names = [trial["training_job_name"] for trial in found["trials"]]
    return names.index(job) + 1 if job in names else None


def _chosen(each: Mapping[str, Any]) -> ChosenRow:
    return ChosenRow(
        name=each["name"],
        value=_text(each["value"]),
        origin=each["origin"],
        tone="good" if each["origin"] == "tuned" else "",
        instead_of=_text(each["instead_of"]),
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return str(value) if isinstance(value, (int, bool)) else f"{number:.4g}"
