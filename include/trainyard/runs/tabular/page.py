"""HTML page of an AutoML run, with the style sheet of the other reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.job_status import JobStatus
from trainyard.runs.report import views
from trainyard.runs.report.page_template import assets, page_template
from trainyard.units import format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainyard.runs.tabular.record import TabularRecord

_FOLDER = Path(__file__).parent
_STYLES = (_FOLDER.parent / "report" / "page.css", _FOLDER / "tabular.css")
MOST_COLUMNS = 20
MOST_CANDIDATES = 50
_ABSENT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBar:
    """One row with a bar: its name, text, length from 0 to 100, and a note."""

    name: str
    text: str
    share: float
    note: str = ""
    tone: str = ""


def render_tabular_html(record: TabularRecord) -> str:
    """Return the report of an AutoML run as one self-contained HTML document.

    Every text of the record is escaped. Sections without data are omitted.
    """
    return page_template(_FOLDER / "page.html.jinja").render(
        record=record,
        failure=views.error_view(record.failure) if record.failure else None,
        verdict=("Failed", "bad") if record.failure else ("Succeeded", "good"),
        subtitle=_subtitle(record),
        tiles=list(_tiles(record)),
        candidates=candidate_bars(record),
        num_hidden=max(0, len(record.candidates) - MOST_CANDIDATES),
        metrics=list(metric_rows(record)),
        matrix=_matrix(record),
        columns=importance_bars(record),
        links=list(_links(record)),
        facts=list(_facts(record)),
        css=assets(*_STYLES),
    )


def candidate_bars(record: TabularRecord) -> list[ScoreBar]:
    """Return the bars of the best candidates, at most `MOST_CANDIDATES`, the best first.

    The length of a bar depends linearly on the objective: 100 for the best candidate, and 5 for the worst one
    shown. If all objectives are equal, the length is 100. A candidate without an objective has length 0.
    """
    shown = record.candidates[:MOST_CANDIDATES]
    values = [float(each["value"]) for each in shown if each["value"] is not None]
    worst, best = (values[-1], values[0]) if values else (0.0, 1.0)
    span = abs(best - worst)
    return [
        ScoreBar(
            name=each["name"],
            text=_ABSENT if each["value"] is None else _number(each["value"]),
            share=0.0
            if each["value"] is None
            else 5 + 95 * abs(float(each["value"]) - worst) / span
            if span
            else 100,
            note=each["status"] if each["status"] != JobStatus.COMPLETED else _lasted(each),
            tone="best" if place == 0 and each["value"] is not None else "",
        )
        for place, each in enumerate(shown)
    ]


def importance_bars(record: TabularRecord) -> list[ScoreBar]:
    """Return a bar for each of the 20 most important columns. Negative importance has length 0."""
    shown = record.importance[:MOST_COLUMNS]
    most = max((float(each["importance"]) for each in shown), default=0.0) or 1.0
    return [
        ScoreBar(
            name=each["name"],
            text=_number(each["importance"]),
            share=100 * max(0.0, float(each["importance"])) / most,
            note=f"± {_number(each['std'])}",
        )
        for each in shown
    ]


def metric_rows(record: TabularRecord) -> Iterable[tuple[str, str, str, str, bool]]:
    """Yield (name, validation, test, baseline, is_objective) for each metric of the test rows, the objective first."""
    evaluation = record.evaluation
    if evaluation is None:
        return
    best = (record.search or {}).get("best", {})
    validation = best.get("metrics", {}).get("Validation", {})
    names = sorted(evaluation["metrics"], key=lambda name: (name != record.metric, name))
    for name in names:
        yield (
            name,
            _number(validation[name]) if name in validation else _ABSENT,
            _number(evaluation["metrics"][name]),
            _number(evaluation["baseline"][name]) if name in evaluation["baseline"] else _ABSENT,
            name == record.metric,
        )


def _subtitle(record: TabularRecord) -> str:
    facts, search = record.facts, record.search
    parts = []
    if facts:
        parts.append(f"{facts.get('dataset') or 'own table'}: predict {facts['target']}")
        rows = ", ".join(f"{count:,} {name}" for name, count in facts["num_rows"].items())
        parts.append(f"{rows} rows, {facts['num_columns']} columns")
    if search:
        parts.append(str(search.get("problem_type")))
    return " · ".join(parts)


def _tiles(record: TabularRecord) -> Iterable[views.Tile]:
    evaluation, search = record.evaluation, record.search
    if evaluation and record.metric in evaluation["metrics"]:
        beats = record.beats_baseline
        yield views.Tile(
            name=f"{record.metric} on the test rows",
            value=_number(evaluation["metrics"][record.metric]),
            note=f"baseline {_number(evaluation['baseline'][record.metric])}",
            tone="good" if beats else "bad" if beats is False else "",
        )
    if search:
        best = search["best"]
        yield views.Tile(
            name=f"{record.metric} in the search",
            value=_number(best["value"]),
            note=str(best["name"]),
        )
        yield views.Tile(name="Candidates", value=str(len(record.candidates)), note=_ended(search))
        yield views.Tile(
            name="Cost of the search",
            value=format_usd(search.get("cost_usd")),
            note=_budget(search),
        )
    if record.started_at is not None:
        lasted = format_duration(record.ended_at - record.started_at)
        yield views.Tile(name="Duration", value=lasted, note="from start to report")


def _ended(search: Mapping[str, Any]) -> str:
    if search["is_complete"]:
        return "all requested candidates"
    return "time limit reached: the best so far"


def _budget(search: Mapping[str, Any]) -> str:
    seconds = search.get("billable_seconds")
    billed = "" if seconds is None else f"{format_duration(seconds)} billed"
    budget = search.get("budget_usd")
    return billed if budget is None else f"{billed}, of {format_usd(budget)}"


def _matrix(record: TabularRecord) -> dict[str, Any] | None:
    evaluation = record.evaluation or {}
    if "confusion_matrix" not in evaluation:
        return None
    return {
        "classes": evaluation["classes"],
        "rows": list(zip(evaluation["classes"], evaluation["confusion_matrix"], strict=True)),
    }


def _links(record: TabularRecord) -> Iterable[tuple[str, str]]:
    search = record.search or {}
    for name, key in (
        ("Model", "model_artifact"),
        ("Leaderboard", "leaderboard_uri"),
        ("Explanation", "explainability_uri"),
        ("Model insights", "insights_uri"),
    ):
        if search.get(key):
            yield name, str(search[key])
    if record.model:
        yield "Registered as", str(record.model["model_package_arn"])


def _facts(record: TabularRecord) -> Iterable[tuple[str, str]]:
    for name, value in sorted(record.conf.items()):
        if value not in (None, [], ""):
            yield name, str(value)
    if record.facts:
        yield "data fingerprint", str(record.facts["fingerprint"])


def _lasted(each: Mapping[str, Any]) -> str:
    if each.get("created_at") is None or each.get("ended_at") is None:
        return ""
    return format_duration(float(each["ended_at"]) - float(each["created_at"]))


def _number(value: object) -> str:
    return f"{float(str(value)):,.4g}"
