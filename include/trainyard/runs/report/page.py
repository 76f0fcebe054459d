"""HTML page of a run's report, rendered from the template, style sheets and script in this folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.runs.report import views
from trainyard.runs.report.continuity_view import continuity_view
from trainyard.runs.report.figures import learning_figures, resource_figures
from trainyard.runs.report.goodput_view import goodput_view
from trainyard.runs.report.ledger_view import ledger_rows
from trainyard.runs.report.page_template import assets, page_template
from trainyard.runs.report.profile_page import profile_section
from trainyard.runs.report.rules_view import rules_view
from trainyard.runs.report.tiles import tiles
from trainyard.runs.report.timeline import timeline, timeline_legend
from trainyard.runs.report.tuning_view import tuning_view

if TYPE_CHECKING:
    from trainyard.runs.record import RunRecord

_FOLDER = Path(__file__).parent
MOST_SHARD_ROWS = 64


def render_report_html(record: RunRecord) -> str:
    """Return the report of a run as one self-contained HTML document.

    Every text of the record is escaped. Sections without data are omitted.
    """
    said, tone = views.verdict(record)
    return page_template(_FOLDER / "page.html.jinja").render(
        record=record,
        verdict=said,
        tone=tone,
        subtitle=views.subtitle(record),
        tiles=tiles(record),
        failure=views.failure_view(record),
        stop=views.verdict_view(record) or views.cap_view(record),
        learning=learning_figures(record),
        resources=resource_figures(record),
        continuity=continuity_view(record),
        rules=rules_view(record),
        profile=profile_section(record.profile, run_id=record.run_id),
        tuning=tuning_view(record),
        ledger=ledger_rows(record),
        goodput=goodput_view(record),
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
        most_shard_rows=MOST_SHARD_ROWS,
        css=assets(_FOLDER / "page.css", _FOLDER / "tuning.css", _FOLDER / "profile.css"),
        script=assets(_FOLDER / "page.js"),
    )
