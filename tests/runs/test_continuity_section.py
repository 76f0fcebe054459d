"""The page tells what interruptions cost, in one line where there were none."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.runs.interrupted_run import Break, InterruptedRun
from tests.runs.sample_run import sample_record, training_snapshot
from tests.runs.test_report import ParsedPage
from trainyard.runs.builder import job_record
from trainyard.runs.continuity import measure_continuity
from trainyard.runs.report.attempt_strip import attempt_strip
from trainyard.runs.report.page import render_report_html

# Checkpoints at every eighth step: the first falls back from 20 (logged) to 16, the second from 40 to 32.
TWICE = InterruptedRun(
    logs_checkpoints=True,
    breaks=(Break(after_steps=21), Break(after_steps=24, next_world_size=1)),
)


def section(run: InterruptedRun, **changes: Any) -> str:
    """Return the section's text, without its tags."""
    html = render_report_html(run.record(**changes))
    assert ParsedPage(html).open == []  # every tag is closed
    found = re.search(r'<section id="continuity">.*?</section>', html, re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", found[0])) if found else ""


def test_a_run_that_nothing_interrupted_says_so_and_has_no_table() -> None:
    text = section(InterruptedRun())

    assert "No interruption; 0 steps redone; every sample once" in text
    assert "Resumed at" not in text
    assert "make verify RUN=manual__2026-11-21T10:15:00+00:00" in text


def test_interruptions_are_told_with_their_cost() -> None:
    text = section(TWICE)

    for words in (
        "2 interruptions; 12 steps redone; every sample once",
        "0 repeated, 0 missed",
        "20.0% of the run, 48 samples rolled back",
        "waiting 36 s, starting up 10 s",
        "Resumed at",
        "1 to 20",
        "33 to 60",
    ):
        assert words in text


def test_the_loss_plot_shows_where_each_interruption_threw_the_run_back() -> None:
    html = render_report_html(TWICE.record())

    assert "interrupted at 20, resumed at 16" in html
    assert "interrupted at 40, resumed at 32" in html
    assert html.count('class="band"') == 2
    assert html.count('class="dot redone"') == 2
    assert html.count('class="curve redone ghost"') == 2
    assert html.count('<i class="swatch redone"></i>redone<') == 1


def test_many_interruptions_are_marked_by_their_number() -> None:
    run = InterruptedRun(num_steps=90, breaks=(Break(after_steps=11),) * 10)

    html = render_report_html(run.record())

    assert "interrupted at" not in html
    assert html.count('<line class="mark"') == 10


def test_what_restarted_otherwise_is_not_called_an_interruption() -> None:
    failed = Break(after_steps=20, ended_by="failed")

    assert "1 other restart; 4 steps redone" in section(InterruptedRun(breaks=(failed,)))
    assert "1 interruption and 1 other restart" in section(
        InterruptedRun(breaks=(failed, Break(after_steps=9)))
    )


def test_samples_without_a_line_are_told_with_a_warning() -> None:
    run = InterruptedRun(breaks=(Break(after_steps=18, num_lines_lost=2),))

    assert "no sample repeated; the log has no line for 24 samples" in section(run)


def test_a_repeated_sample_is_told_as_such() -> None:
    run = InterruptedRun()
    run.lines.append(next(line for line in run.lines if "step=30 epoch" in line.text))

    assert "40 samples repeated, 0 missed" in section(run)


@pytest.mark.parametrize(
    ("snapshot", "why", "words"),
    [
        ({}, "AccessDenied", "Not known: AccessDenied."),
        ({"started_at": None}, None, "Not known: no job got instances"),
    ],
    ids=["no log", "never started"],
)
def test_what_is_not_known_is_said_with_the_reason(
    snapshot: dict[str, Any], why: str | None, words: str
) -> None:
    job = job_record("train", training_snapshot(transitions=[], **snapshot))
    continuity = measure_continuity([], [job], why_no_log=why)

    assert words in section(InterruptedRun(), jobs=[job], continuity=continuity.to_dict())


def test_a_run_without_a_job_has_no_such_section() -> None:
    assert section(InterruptedRun(), continuity=measure_continuity([], []).to_dict()) == ""


def test_the_rung_of_each_attempt_is_shown_where_there_was_a_ladder() -> None:
    jobs = [
        job_record("train", training_snapshot(name="train-1", rung=0, rung_reason="the first")),
        job_record("train", training_snapshot(name="train-2", rung=1, rung_reason="no spot came")),
    ]
    run = InterruptedRun(breaks=(Break(after_steps=20, ended_by="failed"),))
    told = measure_continuity(run.lines, jobs).to_dict()

    assert "no spot came" in section(run, jobs=jobs, continuity=told)
    assert "Rung" not in section(run)


def test_the_strip_compares_attempts_and_leaves_one_alone() -> None:
    strip = attempt_strip(measure_continuity(TWICE.lines, TWICE.jobs))

    assert strip.count('<rect class="kept"') == 3
    assert strip.count('<rect class="redone"') == 2
    plain = InterruptedRun()
    assert attempt_strip(measure_continuity(plain.lines, plain.jobs)) == ""


def test_the_ledger_lists_what_was_paid_and_what_may_still_cost() -> None:
    settled = {"kind": "training", "name": "train-1", "task_id": "train", "status": "Completed"}
    entries = [
        {**settled, "settled_at": 5.0, "cost_usd": 0.01},
        {**settled, "kind": "endpoint", "name": "left-1", "settled_at": None, "cost_usd": None},
    ]

    html = render_report_html(sample_record(ledger={"entries": entries}))

    assert "Everything paid that this run created: 2, 1 not known to have ended" in html
    assert html.index("left-1") < html.index("<code>train-1</code>")
    done = render_report_html(sample_record(ledger={"entries": entries[:1]}))
    assert "Everything paid that this run created: 1, all ended" in done


def test_the_continuity_of_a_record_is_that_of_its_document() -> None:
    data = json.loads(TWICE.record().to_json())

    assert data["continuity"]["steps_redone"] == 12
    assert [each["resumed_at"] for each in data["continuity"]["attempts"]] == [0, 16, 32]
