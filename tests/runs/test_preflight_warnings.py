"""What preflight warned of is in the report; a run without warnings has no such section."""

from __future__ import annotations

from tests.runs.sample_run import sample_arguments, sample_record
from trainyard.runs.report.page import render_report_html


def test_warnings_of_the_plan_are_shown_escaped() -> None:
    plan = {**sample_arguments()["plan"], "warnings": ["instance_type: has no EFA <b>"]}

    html = render_report_html(sample_record(plan=plan))

    assert 'id="warnings"' in html
    assert "<li>instance_type: has no EFA &lt;b&gt;</li>" in html


def test_a_run_without_warnings_has_no_such_section() -> None:
    assert 'id="warnings"' not in render_report_html(sample_record())
