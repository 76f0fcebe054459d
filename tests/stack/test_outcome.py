"""A run's end as it is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.stack.aws import AwsEndpoint
from trainyard.stack.following import RunView, TaskView
from trainyard.stack.outcome import Report, error_message, fetch_report, summary

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunningEngine

RECORD = {
    "started_at": 100.0,
    "ended_at": 190.0,
    "dataset": {"unigram_loss": 3.0290},
    "jobs": [
        {
            "task_id": "train",
            "name": "train-1",
            "status": "Completed",
            "instance_type": "ml.m5.large",
            "instance_count": 2,
            "final_metrics": {"validation:loss": 1.5},
        }
    ],
    "evaluation": {"metrics": {"test_loss": 1.6, "unigram_loss": 3.1}},
    "cost": {"total_usd": 0.0123},
    "model_package_arn": "arn:aws:sagemaker:us-east-1:1:model-package/trainyard/1",
}


def ended(state: str) -> RunView:
    task = TaskView(task_id="train", state=state, try_number=1, duration_s=61.0)
    return RunView(run_id="manual__1", state=state, tasks=(task,))


def test_the_summary_sets_the_loss_beside_its_baseline(tmp_path: Path) -> None:
    (file := tmp_path / "report.json").write_text(json.dumps(RECORD))
    text = "\n".join(summary(ended("success"), Report(json_file=file)))
    assert "succeeded" in text
    assert "loss 1.5000  (unigram baseline 3.0290)" in text
    assert "Completed  2 x ml.m5.large  train-1" in text
    assert "0.0123 USD" in text
    assert "1 min 30 s" in text
    assert str(file) in text


CONTINUITY = {
    "why_unknown": None,
    "interruptions": 2,
    "steps_redone": 12,
    "samples_repeated": 0,
    "samples_missed": 0,
}


def test_the_summary_says_what_interruptions_cost_and_how_to_check_it(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps({**RECORD, "continuity": CONTINUITY}))
    text = "\n".join(summary(ended("success"), Report(json_file=file)))
    assert "2 interruptions, 12 steps redone, no sample repeated or missed" in text
    assert "make verify RUN=manual__1" in text


def test_the_summary_names_the_winner_of_the_search(tmp_path: Path) -> None:
    found = {
        "best": {
            "value": 2.41234,
            "tuned_hyperparameters": {"learning_rate": "0.00210042", "precision": "bf16"},
        },
        "num_trials": {"Completed": 11, "Failed": 1, "Stopped": 0},
        "objective": {"metric_name": "validation:loss"},
    }
    file = tmp_path / "report.json"
    file.write_text(json.dumps({**RECORD, "tuning": {"result": found}}))
    text = "\n".join(summary(ended("success"), Report(json_file=file)))
    assert (
        "best of 12 trials: validation:loss 2.4123 with learning_rate 0.0021  precision bf16"
        in text
    )


def test_the_summary_names_what_the_rules_found(tmp_path: Path) -> None:
    def said(names: dict[str, int], worst: str | None, *, why: str | None = None) -> str:
        none = {"name": "NonFinite", "issues": [], "not_evaluated": why}
        verdicts = [
            {"name": name, "issues": [{"step": at}], "not_evaluated": None}
            for name, at in names.items()
        ]
        rules = {"worst": worst, "verdicts": [*verdicts, none]}
        (file := tmp_path / "report.json").write_text(json.dumps({**RECORD, "rules": rules}))
        return "\n".join(summary(ended("success"), Report(json_file=file)))

    assert "no issue found in the training; make rules RUN=manual__1 shows all" in said({}, None)
    assert "nothing to evaluate: no rule" in said({}, None, why="needs losses")
    found = said({"LossSpike": 82, "A": 1, "B": 2, "C": 3}, "error")
    assert "error: LossSpike at step 82, A at step 1, B at step 2 and 1 more; make rules" in found


@pytest.mark.parametrize("told", [None, CONTINUITY | {"why_unknown": "the log is gone"}])
def test_the_summary_is_silent_about_what_is_not_known(
    told: dict[str, object] | None, tmp_path: Path
) -> None:
    (file := tmp_path / "report.json").write_text(json.dumps({**RECORD, "continuity": told}))
    assert "verify" not in "\n".join(summary(ended("success"), Report(json_file=file)))


class Xcoms:
    """What an api-server answers that knows where the report lies."""

    def __init__(self, prefix: str = "s3://b") -> None:
        self.prefix = prefix

    def xcom(self, *_: str) -> dict[str, str]:
        return {name: f"{self.prefix}/{name.replace('_', '.')}" for name in _PARTS}


_PARTS = ("report_html", "report_json")


@pytest.mark.engine
def test_everything_below_the_reports_prefix_is_copied(
    engine: RunningEngine, s3: Any, tmp_path: Path
) -> None:
    names = ["report.html", "report.json", "continuity.json", "deeper/training_log.jsonl.gz"]
    for name in names:
        s3.put_object(Bucket=engine.bucket, Key=f"outcome/report/{name}", Body=name.encode())
    s3.put_object(Bucket=engine.bucket, Key="outcome/report-of-another/x", Body=b"x")
    api = Xcoms(f"s3://{engine.bucket}/outcome/report")

    report = fetch_report(api, AwsEndpoint(engine.endpoint_url), "dag", "a/run", to=tmp_path)

    files = {str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file()}
    assert files == {f"a_run/{name}" for name in names}
    assert report.html == tmp_path / "a_run/report.html"
    assert not report.not_fetched


def test_a_report_that_cannot_be_copied_is_said_with_its_place(tmp_path: Path) -> None:
    unreachable = AwsEndpoint("http://127.0.0.1:9")
    report = fetch_report(Xcoms(), unreachable, "dag", "run", to=tmp_path)
    text = "\n".join(summary(ended("success"), report))
    assert "could not be copied from s3://b/report.html" in text
    assert "could not be copied from s3://b/report.json" in text


def test_a_run_without_a_report_still_has_a_verdict() -> None:
    text = "\n".join(summary(ended("failed"), Report()))
    assert "failed" in text
    assert "train 1 min 01 s" in text


def test_a_failed_tasks_message_is_that_of_its_exception() -> None:
    lines = [
        {"level": "error", "event": "Task failed with exception"},
        {
            "level": "error",
            "event": "x",
            "error_detail": [{"exc_type": "DataError", "exc_value": "no rows"}],
        },
        {"level": "info", "event": "bye"},
    ]
    assert error_message(lines) == "DataError: no rows"


def test_without_an_exception_the_last_error_line_is_the_message() -> None:
    assert (
        error_message([{"level": "error", "event": "one"}, {"level": "error", "event": "two"}])
        == "two"
    )


def test_a_log_without_any_error_says_so() -> None:
    assert "killed" in error_message([{"level": "info", "event": "hello"}])
