"""The page tells what the rules found, worst first, and apart what could not be judged."""

from __future__ import annotations

import re

from tests.runs.sample_run import sample_record, sample_tasks
from tests.runs.test_report import ParsedPage
from trainyard.rules.document import judge_log
from trainyard.runs.record import RunRecord
from trainyard.runs.report.page import render_report_html

SPIKE = [
    {
        "time_ms": 1000 * step,
        "job": "j",
        "stream": "s",
        "line": f"trainyard step={step} loss={9.0 if step > 80 else 2.0}",
    }
    for step in range(1, 91)
]
JUDGED = judge_log(SPIKE, {"rules": ["NonFinite", "LossSpike", "NotLearning"]})


def section(record: RunRecord) -> str:
    """Return the section's text, without its tags."""
    html = render_report_html(record)
    assert ParsedPage(html).open == []  # every tag is closed
    found = re.search(r'<section id="rules">.*?</section>', html, re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", found[0])) if found else ""


def test_what_was_found_comes_first_with_step_and_evidence() -> None:
    text = section(sample_record(rules=JUDGED))

    assert "1 with issues, 1 without, 1 not evaluated" in text
    assert "LossSpike IssuesFound warning 83 loss 9 is 4.5 times the median 2" in text
    assert text.index("LossSpike") < text.index("NonFinite")
    assert "1 not evaluated, for want of data" in text
    assert "make rules RUN=manual__2026-11-21T10:15:00+00:00" in text


def test_a_run_that_was_not_judged_has_no_such_section() -> None:
    assert section(sample_record()) == ""
    assert section(sample_record(rules={"worst": None, "verdicts": []})) == ""


def test_a_failed_watch_is_said_before_the_verdicts_and_without_any() -> None:
    tasks = sample_tasks(watch_rules="failed")
    calm = judge_log(SPIKE[:70], {"rules": ["NonFinite"]})

    found = section(sample_record(rules={**calm, "unwatched": ["a-1"]}, tasks=tasks))
    html = render_report_html(sample_record(rules=None, tasks=tasks))

    says = (
        "the task watch_rules failed (see its log), so from then on no rule could stop the training"
    )
    assert f"{says}; 0 with issues, 1 without" in found
    assert "(job a-1 was not watched to its end)" in found
    assert f'<span class="pill warn">{says}; no verdict</span>' in html
    assert "Task watch_rules failed" not in html


def test_the_verdicts_are_kept_in_the_record() -> None:
    record = sample_record(rules=JUDGED)

    assert RunRecord.from_json(record.to_json()) == record


def test_verdicts_over_nothing_are_not_green() -> None:
    nothing = judge_log([], {"rules": ["NonFinite", "LossSpike"]})

    text = section(sample_record(rules=nothing))
    html = render_report_html(sample_record(rules=nothing))

    assert "nothing to evaluate: 2 rules" in text
    (found,) = re.findall(r'<section id="rules">.*?</section>', html, re.DOTALL)
    assert "good" not in found
