"""The profile's page: every part is there, every axis has its unit, nothing is empty without a reason."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import TYPE_CHECKING

import pytest

from tests.runs.profile.timed_run import eventful_run, starts, steps
from tests.runs.sample_run import sample_record
from tests.runs.test_report import ParsedPage
from trainyard.rules.records import Facts, Start
from trainyard.runs.profile import Profile, profile_of, profile_summary
from trainyard.runs.profile.__main__ import main
from trainyard.runs.profile.traces import trace_of
from trainyard.runs.report.page import render_report_html
from trainyard.runs.report.profile_page import render_profile_html

if TYPE_CHECKING:
    from pathlib import Path

SECTIONS = ["bottleneck", "steps", "stragglers", "outliers", "hosts", "memory", "rules", "traces"]
TRACE = "statistics/trace-rank-00001.attempt-0002.steps-10-13.json.gz"


@pytest.fixture(scope="module")
def whole() -> Profile:
    """A profile with everything."""
    trace = trace_of(TRACE, num_bytes=2_000_000)
    assert trace is not None
    return profile_of(eventful_run(with_gpu=True), Facts(), traces=[trace])


def html_of(profile: Profile) -> str:
    """Return the page; every tag of it is closed."""
    html = render_profile_html(profile, run_id="manual__<x>")
    assert ParsedPage(html).open == []
    return html


def test_a_whole_profile_has_every_part_and_nothing_empty(whole: Profile) -> None:
    html = html_of(whole)
    page = ParsedPage(html)

    assert page.sections == SECTIONS
    assert "Nothing to show" not in page.text
    assert len(re.findall(r'<svg class="chart', html)) == 3 + len(whole.usages)
    assert "Bottleneck" in page.text
    assert "Waiting for data" in page.text
    assert "Rank 1 is slow" in page.text
    assert "manual__<x>" in page.text


def test_every_axis_names_what_it_shows_with_its_unit(whole: Profile) -> None:
    html = html_of(whole)

    labels = [unescape(text) for text in re.findall(r'class="label"[^>]*>([^<]+)<', html)]

    assert len(labels) == 2 * (2 + len(whole.usages)) + 1  # the bars have names on their y axis
    assert [each for each in labels if not re.search(r"\(.+\)|optimizer step", each)] == []
    assert "time of a step (ms)" in labels
    assert "share of step time (%)" in labels
    assert labels.count("time since the training's start (s)") == len(whole.usages)


def test_a_curve_is_interrupted_where_the_training_was(whole: Profile) -> None:
    html = html_of(whole)

    processor = re.search(r"<h3>Processor</h3>.*?</figure>", html, re.DOTALL)

    assert processor
    assert processor[0].count("<polyline") == 4  # two hosts, before and after the restart


def test_a_trace_is_linked_beside_the_page(whole: Profile) -> None:
    html = html_of(whole)

    assert f'<a href="{TRACE}">' in html
    assert "rank 1, steps 10 to 13, start 2" in ParsedPage(html).text


def test_a_profile_without_anything_says_why_everywhere() -> None:
    page = ParsedPage(html_of(profile_of([Start(world_size=2, time=1.0)], Facts())))

    assert page.sections == SECTIONS
    for why in (
        "no times of steps in the training's statistics",
        "no samples of the hosts in the training's statistics",
        "no samples of memory in the training's statistics",
        "None taken: set the hyperparameter trace_steps",
    ):
        assert why in page.text
    assert "Not known" in page.text
    assert not [attrs for tag, attrs in page.tags if tag == "svg"]


def test_a_page_without_gpus_says_so() -> None:
    page = ParsedPage(html_of(profile_of(eventful_run(), Facts())))

    assert page.text.count("no GPU samples: no GPU on algo-1, algo-2") == 1
    assert "GPU, GPU memory" in page.text


def test_the_report_has_the_bottleneck_its_figure_and_the_link(whole: Profile) -> None:
    html = render_report_html(sample_record(profile=profile_summary(whole)))

    found = re.search(r'<section id="profile">.*?</section>', html, re.DOTALL)

    assert found
    assert "Bottleneck: Waiting for data" in found[0]
    assert found[0].count("<svg") == 1
    assert '<a href="profile.html">' in found[0]
    assert ParsedPage(html).open == []
    assert "profile" not in ParsedPage(render_report_html(sample_record())).sections


def test_the_command_writes_page_and_data_and_names_the_bottleneck(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "manual__1"
    (folder / "statistics").mkdir(parents=True)
    header = {
        "format": "trainyard-statistics",
        "version": 1,
        "rank": 0,
        "world_size": 1,
        "attempt": 1,
        "resumed_at": 0,
        "time": 1000.0,
        "tensors": {},
    }
    lines = [
        {
            "kind": "step",
            "step": n,
            "time": 1000.0 + n,
            "step_seconds": 1.0,
            "data_wait_seconds": 0.6,
        }
        for n in range(1, 101)
    ]
    text = "".join(json.dumps(each) + "\n" for each in [header, *lines])
    (folder / "statistics/rank-00000.attempt-0001.part-0001.jsonl").write_text(text)

    assert main([str(folder)]) == 0

    said = capsys.readouterr().out
    assert "bottleneck: Waiting for data: 60% of a step" in said
    assert json.loads((folder / "profile.json").read_text())["num_steps"] == 100
    assert "60%" in (folder / "profile.html").read_text()


def test_the_command_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2

    assert "to evaluate" in capsys.readouterr().err


def test_long_steps_are_told_in_seconds() -> None:
    long = {"step_seconds": 4.0, "forward_seconds": 1.5, "backward_seconds": 2.0}
    html = html_of(profile_of([*starts(2), *steps(1, 12, **long)], Facts()))

    assert "time of a step (s)" in html
    assert "4 s a step" in html
    ticks = re.findall(r'class="tick"[^>]*text-anchor="middle">([^<]+)<', html)
    assert [each for each in ticks if "." in each] == []  # half a step is none


def test_one_step_is_drawn(whole: Profile) -> None:
    html = html_of(profile_of([*starts(1), *steps(1, 2, num_ranks=1)], Facts()))

    assert '<polygon class="area part-backward"' in html
    assert "too few steps for outliers (1)" in ParsedPage(html).text
    assert whole.num_steps == 600
