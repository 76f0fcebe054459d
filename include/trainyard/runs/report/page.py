"""HTML page of a run's report, with its section on rules.

The template, style sheets and script are in this folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.rules.table import VerdictRow, summary_sentence, verdict_rows
from trainyard.runs.goodput import Cause
from trainyard.runs.report import views
from trainyard.runs.report.continuity_view import continuity_view
from trainyard.runs.report.figures import learning_figures
from trainyard.runs.report.page_template import assets, page_template
from trainyard.runs.report.profile_page import profile_section
from trainyard.runs.report.tiles import tiles
from trainyard.runs.report.timeline import timeline, timeline_legend
from trainyard.runs.report.tuning_view import tuning_view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.runs.record import RunRecord

_FOLDER = Path(__file__).parent
MOST_SHARD_ROWS = 64
COLORS: Mapping[str, str] = {
    Cause.STEPPING: "working",
    Cause.DATA_STALL: "interrupted",
    Cause.CHECKPOINTING: "uploading",
    Cause.REDONE: "stopping",
    Cause.CAPACITY: "waiting",
    Cause.STARTING: "downloading",
    Cause.FINISHING: "warn",
    Cause.DATA: "good",
    Cause.SEARCHING: "norm",
    Cause.TESTING: "validation",
    Cause.EVALUATING: "speed",
    Cause.PERSON: "rate",
    Cause.AIRFLOW: "other",
}
"""Color per cause: the name of a variable in the style sheet."""
_BY = {
    "statistics": "; evaluated while it trained, on the statistics of its ranks",
    "log": "; evaluated on the training log",
    "statistics and log": "; evaluated on the statistics of its ranks and on the training log",
}
_TONES = {"error": "bad", "warning": "warn", None: "good"}
_FAILED_WATCH = (
    "the task watch_rules failed (see its log), so from then on no rule could stop the training; "
)
_NO_DATA = "nothing to evaluate: the script does not use trainyard_watch (docs/own_scripts.md)"


def render_report_html(record: RunRecord) -> str:
    """Return the report of a run as one self-contained HTML document.

    Every text of the record is escaped. Sections without data are omitted.
    """
    verdict, tone = views.verdict(record)
    return page_template(_FOLDER / "page.html.jinja").render(
        record=record,
        verdict=verdict,
        tone=tone,
        subtitle=views.subtitle(record),
        tiles=tiles(record),
        failure=views.failure_view(record),
        stop=views.verdict_view(record) or views.money_view(record),
        learning=learning_figures(record),
        continuity=continuity_view(record),
        rules=rules_view(record),
        profile=profile_section(record.profile, run_id=record.run_id),
        tuning=tuning_view(record),
        ledger=_ledger(record),
        colors=COLORS,
        timeline=timeline(record),
        tasks_not_run=views.tasks_not_run(record),
        timeline_legend=timeline_legend(record),
        splits=views.split_views(record),
        dataset_rows=views.dataset_rows(record),
        cost_rows=views.cost_rows(record),
        lineage_rows=views.lineage_rows(record),
        evaluation_rows=views.evaluation_rows(record),
        conf_rows=views.conf_rows(record),
        job_state=views.job_state,
        instances=views.instances,
        most_shard_rows=MOST_SHARD_ROWS,
        css=assets(_FOLDER / "page.css", _FOLDER / "tuning.css", _FOLDER / "profile.css"),
        script=assets(_FOLDER / "page.js"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesView:
    """Rules section: the rules that were evaluated, and those that were not.

    Attributes:
        again: command that evaluates the rules again; empty if there is no data for the rules.
    """

    sentence: str
    tone: str
    judged: tuple[VerdictRow, ...]
    not_judged: tuple[VerdictRow, ...]
    again: str


def rules_view(record: RunRecord) -> RulesView | None:
    """Return the rules section; None if there is nothing to report.

    If the task `watch_rules` failed, the section begins with this failure. For a run without verdicts, there is
    a section in two cases: this task failed, or the run used a user's script. The section then gives the reason
    for the missing verdicts.
    """
    if record.rules is None or not record.rules["verdicts"]:
        if record.has_failed_watch:
            return _empty_section(f"{_FAILED_WATCH}no verdict")
        return _empty_section(_NO_DATA) if record.conf.get("entry_point") else None
    rows = verdict_rows(record.rules["verdicts"])
    tone = _TONES[record.rules["worst"]] if any(row.tone for row in rows) else "warn"
    begins = _FAILED_WATCH if record.has_failed_watch else ""
    return RulesView(
        sentence=begins + summary_sentence(record.rules["verdicts"]) + _judged_by(record.rules),
        tone="warn" if record.has_failed_watch and tone == "good" else tone,
        judged=tuple(row for row in rows if row.tone),
        not_judged=tuple(row for row in rows if not row.tone),
        again=f"make rules RUN={record.run_id}",
    )


def _empty_section(sentence: str) -> RulesView:
    """Return a rules section with a sentence and no verdicts."""
    return RulesView(
        sentence=sentence,
        tone="warn",
        judged=(),
        not_judged=(),
        again="",
    )


def _judged_by(rules: Mapping[str, Any]) -> str:
    """Return the source of the verdicts, and the jobs that were not watched to their end, in words."""
    unwatched = ", ".join(rules.get("unwatched", ()))
    by = _BY.get(str(rules.get("judged")), "")
    return f"{by} (job {unwatched} was not watched to its end)" if unwatched else by


def _ledger(record: RunRecord) -> list[Mapping[str, Any]]:
    """Return the billed resources that the run created. Unsettled ones, which may still cost money, are first."""
    entries = (record.ledger or {}).get("entries", ())
    return sorted(entries, key=lambda each: each.get("settled_at") is not None)
