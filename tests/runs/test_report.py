"""The page is whole by itself, escapes what it shows, and has no part without content."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.runs.sample_run import (
    built_record,
    metric_lines,
    sample_record,
    sample_tasks,
    shard_index,
    training_snapshot,
)
from trainyard.errors import Finding, SpecError
from trainyard.runs.builder import job_record
from trainyard.runs.ledger import Ledger, LedgerEntry, PaidKind
from trainyard.runs.record import MoneyStop, RunRecord
from trainyard.runs.report.axes import TIMES
from trainyard.runs.report.page import render_report_html

SECTIONS = {"learning", "goodput", "timeline", "jobs", "data", "model", "configuration"}
FAILURE = {
    "task_id": "train",
    "error": "ScriptError",
    "what": "the training script failed",
    "where": "job x",
    "got": "ValueError: <b>boom</b>",
    "next_step": "read the log",
    "log_tail": ["Traceback (most recent call last):", "ValueError: <b>boom</b>"],
}


class ParsedPage(HTMLParser):
    """What a test asks of a page: which parts, which tags, which addresses, which text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append((tag, values))
        if tag == "section" and values.get("id"):
            self.sections.append(str(values["id"]))
        if tag not in {"meta", "link", "br", "img", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"style", "script"}:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))


def page(**changes: Any) -> ParsedPage:
    parsed = ParsedPage(render_report_html(sample_record(**changes)))
    assert parsed.open == []  # every tag is closed
    return parsed


def test_a_whole_run_has_every_part() -> None:
    assert set(page().sections) == SECTIONS


def test_the_wall_time_is_accounted_for_by_cause() -> None:
    record = sample_record()
    assert record.goodput is not None
    assert sum(record.goodput["seconds"].values()) == pytest.approx(record.wall_seconds)
    text = page().text
    assert f"{record.goodput['share']:.0%} of 5 min 18 s went into steps that survived" in text
    for cause in record.goodput["seconds"]:
        assert cause in text


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"image_digest": "sha256:abc"}, "image digest sha256:abc"),
        ({"image_digest_unknown": "no answer"}, "image digest not known: no answer"),
    ],
    ids=["known", "not known"],
)
def test_the_lineage_names_the_digest_of_the_image(facts: dict[str, str], words: str) -> None:
    record = sample_record(jobs=[job_record("train", training_snapshot(**facts))])
    (job,) = json.loads(record.to_json())["jobs"]

    assert words in page(jobs=record.jobs).text
    assert {name: job[name] for name in facts} == facts


def test_the_groups_of_a_job_are_named() -> None:
    groups = [
        {"instance_group_name": "feed", "instance_type": "ml.c5.xlarge", "instance_count": 1},
        {"instance_group_name": "train", "instance_type": "ml.g5.xlarge", "instance_count": 2},
    ]
    record = sample_record(jobs=[job_record("train", training_snapshot(instance_groups=groups))])

    assert RunRecord.from_json(record.to_json()) == record
    words = f"1 {TIMES} ml.c5.xlarge (feed) + 2 {TIMES} ml.g5.xlarge (train)"
    assert page(jobs=record.jobs).text.count(words) == 2  # the headline and the job


def test_a_run_of_an_older_release_has_no_row_for_the_digest() -> None:
    assert "image digest" not in page().text


def test_the_page_loads_nothing() -> None:
    for tag, attributes in page().tags:
        for name in ("src", "href", "srcset", "data"):
            target = attributes.get(name) or ""
            assert tag == "a" or not target or target == "data:,"
    html = render_report_html(sample_record())
    assert "@import" not in html
    assert "url(" not in html
    assert "fetch(" not in html


def test_the_key_numbers_are_said() -> None:
    text = page().text

    for words in (
        "Succeeded",
        "unigram baseline 3.187: 48% below it",
        "spot saved $0.0082",
        "5 min 18 s",
        "of 400, 1 resume",
        f"2 {TIMES} ml.m5.large (spot)",
        "resumed at step 150",
        "perplexity 5.71",
        "arn:aws:sagemaker:us-east-1:123456789012:model-package/trainyard/3",
    ):
        assert words in text


def test_every_chart_names_its_axes_with_units() -> None:
    html = render_report_html(sample_record())

    labels = [unescape(s) for s in re.findall(r'<text class="label"[^>]*>([^<]+)<', html)]

    assert "loss (nats per token)" in labels
    assert "tokens/s" in labels
    assert f"learning rate {TIMES}10⁻³" in labels
    assert "L2 norm, before clipping" in labels
    assert labels.count("optimizer step") == 4
    assert "time since the run's start (min)" in labels


def test_a_failed_run_says_what_where_got_and_the_next_step() -> None:
    parsed = page(tasks=sample_tasks(train="failed"), failure=FAILURE)

    assert "failure" in parsed.sections
    for words in ("Failed", "the training script failed", "job x", "boom", "read the log"):
        assert words in parsed.text


def test_findings_are_listed() -> None:
    error = SpecError([Finding(where="max_wait", what="is too short", got="1", allowed="2")])

    parsed = page(failure={"task_id": "preflight", **error.to_dict()})

    assert "max_wait: is too short. Got 1. Allowed: 2." in parsed.text


def test_tasks_that_never_started_are_named() -> None:
    waiting = {"task_id": "evaluate", "state": "upstream_failed", "start": None, "end": None}

    assert "Not run: evaluate." in page(tasks=[*sample_tasks(train="failed")[:3], waiting]).text


def test_a_failure_nobody_explained_points_to_the_tasks_log() -> None:
    parsed = page(tasks=sample_tasks(train="failed"))

    assert "Task train failed; see its log in Airflow" in parsed.text


def test_text_of_the_run_is_escaped() -> None:
    nasty = "<script>alert(1)</script>"

    html = render_report_html(
        sample_record(
            run_id=nasty,
            conf={"source": nasty, nasty: nasty},
            failure={"what": nasty, "log_tail": [nasty]},
            jobs=[job_record(nasty, training_snapshot(name=nasty))],
        )
    )

    assert nasty not in html
    assert html.count("<script>") == 1
    assert "javascript:" not in re.sub(r"<code>javascript:[^<]*</code>", "", html)


@pytest.mark.parametrize(
    ("arguments", "sections"),
    [
        ({}, set()),
        ({"conf": {"model": "gpt"}}, {"configuration"}),
        ({"tasks": sample_tasks()}, {"timeline"}),
        ({"metric_lines": metric_lines()}, {"learning"}),
        ({"metric_lines": ['{"event": "done", "step": 3}']}, set()),
        ({"shard_index": shard_index()}, {"data", "model"}),
        ({"evaluation": {"metrics": {"test_loss": 1.0}}}, {"model"}),
        (
            {"jobs": [job_record("train", training_snapshot(transitions=[]))]},
            {"jobs", "model"},
        ),
        ({"failure": {"what": "broken"}}, {"failure"}),
    ],
    ids=lambda v: ",".join(v) if isinstance(v, dict) else None,
)
def test_a_part_without_content_is_left_out(arguments: dict[str, Any], sections: set[str]) -> None:
    parsed = ParsedPage(render_report_html(built_record(dag_id="d", run_id="r", **arguments)))

    assert set(parsed.sections) == sections


def test_a_run_on_a_table_speaks_of_samples() -> None:
    index = {**shard_index(), "kind": "columns", "baseline": None}
    for split in index["splits"].values():
        for shard in split["shards"]:
            del shard["num_tokens"]
    lines = [line.replace("tokens_per_second", "samples_per_second") for line in metric_lines()]

    text = page(shard_index=index, metric_lines=lines, conf={"model": "mlp"}).text

    assert "samples/s" in text
    assert "loss (training objective)" in text
    assert "Tokens" not in text


def test_many_shards_are_cut_off_with_a_word() -> None:
    index = shard_index()
    index["splits"]["train"]["shards"] *= 40

    assert "260 more in report.json." in page(shard_index=index).text


def test_a_loss_above_the_baseline_is_said_as_such() -> None:
    lines = ['{"event": "eval", "step": 5, "validation_loss": 4.0}']

    assert "26% above it" in page(metric_lines=lines).text


def test_a_run_that_is_not_over_says_so() -> None:
    assert "Still running" in page(tasks=sample_tasks(train="running"), ended_at=None).text


def test_a_run_that_a_rule_ended_begins_with_the_verdict() -> None:
    told = {
        "rule": "NonFinite",
        "step": 30,
        "action": "stop",
        "evidence": "rank 1: the loss is nan",
    }
    told |= {"last_checkpoint": "s3://bucket/step-00000029", "rules_uri": "s3://bucket/rules.json"}
    record = sample_record(verdict=told)

    page = render_report_html(record)

    assert record.status == "stopped by a rule"
    assert "Rule NonFinite ended the training at step 30" in page
    assert page.index('id="verdict"') < page.index('id="learning"')
    for part in ("rank 1: the loss is nan", "s3://bucket/step-00000029", "Stopped by a rule"):
        assert part in page


def test_a_run_that_its_cap_stopped_begins_with_the_money_and_the_model() -> None:
    checkpoint = "s3://bucket/step-00000030"
    stop = MoneyStop(step=30, last_checkpoint=checkpoint, cost_usd=0.1, max_cost_usd=0.2)
    record = sample_record(cap_stop=stop)

    page = render_report_html(record)

    assert record.status == "stopped by its cost cap"
    assert RunRecord.from_json(record.to_json()).cap_stop == stop
    assert "The cost cap ended the training at step 30" in page
    assert "A rule ended the training" not in page
    assert page.index('id="verdict"') < page.index('id="learning"')
    for part in ("s3://bucket/step-00000030", "Stopped by its cost cap", "higher max_cost_usd"):
        assert part in page


def test_a_run_with_idle_accelerators_begins_with_the_stop_and_the_model() -> None:
    record = sample_record(idle_stop=MoneyStop(step=30, cost_usd=0.1))

    page = render_report_html(record)

    assert record.status == "stopped: idle accelerators"
    assert "Idle accelerators ended the training at step 30" in page
    assert page.index('id="verdict"') < page.index('id="learning"')
    assert "load data faster" in page


def test_cost_of_a_warm_pool_is_part_of_the_total() -> None:
    alone = sample_record()
    train = alone.job_of("train")
    assert train is not None
    seconds = train.cost["billable_seconds"] + 3600
    entry = LedgerEntry(
        kind=PaidKind.TRAINING,
        name=train.name,
        task_id="train",
        intended_at=1.0,
        status="Completed",
        settled_at=2.0,
        billable_seconds=seconds,
        cost_usd=1.0,
    )

    record = sample_record(ledger=Ledger.of([entry]).to_dict())

    held_usd = train.cost["price_usd_per_hour"] * train.cost["instance_count"]
    assert record.cost["warm_pool_usd"] == pytest.approx(held_usd)
    assert record.cost["total_usd"] == pytest.approx(alone.cost["total_usd"] + held_usd)
    assert "of it warm pools" in render_report_html(record)


def test_a_model_that_nothing_measured_is_reported_as_such() -> None:
    skipped = {"task_id": "evaluate", "state": "skipped", "start": None, "end": None}

    text = page(tasks=[*sample_tasks()[:3], skipped], evaluation={}).text

    assert "not measured the training ended before its last step" in text


def test_stages_that_a_dag_lacks_are_reported_as_such() -> None:
    tasks = [each for each in sample_tasks() if each["task_id"] not in {"evaluate", "register"}]
    text = page(tasks=tasks, evaluation={}, model=None).text

    assert "not measured this DAG has no evaluation" in text
    assert "not registered this DAG has no registration" in text


def test_a_sampled_evaluation_says_of_how_many() -> None:
    of_split = {"metrics": {"test_loss": 1.5}, "num_rows": 92, "num_split_samples": 2388}

    assert "measured 41 of 2,388 samples" in page(evaluation={**of_split, "num_samples": 41}).text
    assert "of 2,388" not in page(evaluation={**of_split, "num_samples": 2388}).text


def test_an_own_script_is_shown_by_its_own_figures() -> None:
    skipped = {"task_id": "evaluate", "state": "skipped", "start": None, "end": None}
    conf = {"entry_point": "train.py", "register_when": "bleu > 30"}

    measured = page(conf=conf, evaluation={"metrics": {"bleu": 31.52, "chrf": 0.61}}).text
    unmeasured = page(conf=conf, tasks=[*sample_tasks()[:3], skipped], evaluation={}).text

    assert "bleu 31.52 chrf 0.61" in measured
    assert "train.py" in measured
    assert "loss (nats per token)" not in measured
    assert "the run names no evaluation_entry_point" in unmeasured


def test_a_script_that_writes_nothing_for_the_rules_is_no_green_verdict() -> None:
    text = page(conf={"entry_point": "train.py"}, rules=None).text

    assert "Rules nothing to evaluate: the script does not use trainyard_watch" in text
