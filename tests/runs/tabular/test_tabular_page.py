"""The AutoML report: what it says, whether it escapes, and that it holds whatever a run came to."""

from __future__ import annotations

import json
from dataclasses import replace

from trainyard.runs.tabular.page import (
    MOST_CANDIDATES,
    candidate_bars,
    importance_bars,
    metric_rows,
    render_tabular_html,
)
from trainyard.runs.tabular.record import TabularRecord

CANDIDATES = [
    {"name": "a-ens-003", "status": "Completed", "value": 0.98, "created_at": 0, "ended_at": 9.0},
    {"name": "a-ll-001", "status": "Completed", "value": 0.97, "created_at": 0, "ended_at": 4.0},
    {"name": "a-rf-002", "status": "Failed", "value": None, "created_at": 0, "ended_at": 4.0},
]
SEARCH = {
    "objective": {"metric_name": "F1", "type": "Maximize"},
    "problem_type": "BinaryClassification",
    "best": {"name": "a-ens-003", "value": 0.98, "metrics": {"Validation": {"F1": 0.98}}},
    "is_complete": False,
    "cost_usd": 0.0123,
    "billable_seconds": 48,
    "budget_usd": 1.0,
    "model_artifact": "s3://b/model.tar.gz",
    "leaderboard_uri": "s3://b/leaderboard.json",
    "explainability_uri": None,
    "insights_uri": None,
}
RECORD = TabularRecord(
    dag_id="autopilot_tabular",
    run_id="manual__1",
    started_at=1_760_000_000.0,
    ended_at=1_760_000_200.0,
    tasks=[{"task_id": "search", "state": "success", "start": 1.0, "end": 60.0}],
    conf={"dataset": "breast_cancer", "algorithms": [], "objective": None},
    facts={
        "dataset": "breast_cancer",
        "target": "target",
        "num_rows": {"train": 455, "test": 114},
        "num_columns": 30,
        "fingerprint": "abc",
    },
    search=SEARCH,
    candidates=CANDIDATES,
    importance=[
        {"name": "worst <b>area</b>", "importance": 0.08, "std": 0.01},
        {"name": "noise", "importance": -0.01, "std": 0.01},
    ],
    evaluation={
        "metrics": {"Accuracy": 0.96, "F1": 0.95},
        "baseline": {"Accuracy": 0.63, "F1": 0.0},
        "num_rows": 114,
        "classes": ["benign", "malignant"],
        "confusion_matrix": [[70, 2], [3, 39]],
    },
    model={"model_package_arn": "arn:aws:sagemaker:us-east-1:1:model-package/m/1"},
)


def test_page_says_what_was_found_and_escapes_it() -> None:
    page = render_tabular_html(RECORD)

    for text in ("a-ens-003", "0.98", "455 train, 114 test rows", "$0.0123", "malignant", "39"):
        assert text in page
    assert "time limit reached: the best so far" in page
    assert "worst &lt;b&gt;area&lt;/b&gt;" in page
    assert "<b>area" not in page
    assert "http://" not in page
    assert "https://" not in page


def test_page_of_a_run_that_failed_at_once_says_why_and_leaves_the_rest_out() -> None:
    failed = TabularRecord(
        dag_id="d",
        run_id="r",
        started_at=None,
        ended_at=0.0,
        tasks=[{"task_id": "prepare", "state": "failed", "start": None, "end": None}],
        failure={"task_id": "prepare", "what": "no such <table>", "next_step": "name another"},
    )
    page = render_tabular_html(failed)

    assert "no such &lt;table&gt;" in page
    assert "name another" in page
    for part in ("Leaderboard", "Test rows", "Importance of the columns"):
        assert part not in page


def test_candidates_bars_span_the_row_and_failed_ones_have_none() -> None:
    bars = candidate_bars(RECORD)
    assert [(each.share, each.tone) for each in bars] == [(100, "best"), (5, ""), (0, "")]
    assert bars[2].note == "Failed"
    many = replace(RECORD, candidates=[CANDIDATES[0]] * (MOST_CANDIDATES + 3))
    assert [each.share for each in candidate_bars(many)] == [100] * MOST_CANDIDATES
    assert "3 more are in" in render_tabular_html(many)


def test_importance_below_zero_has_no_bar() -> None:
    assert [each.share for each in importance_bars(RECORD)] == [100, 0]


def test_metrics_begin_with_the_objective() -> None:
    assert list(metric_rows(RECORD)) == [
        ("F1", "0.98", "0.95", "0", True),
        ("Accuracy", "-", "0.96", "0.63", False),
    ]


def test_less_beats_the_baseline_where_the_objective_is_minimized() -> None:
    search = {**SEARCH, "objective": {"metric_name": "MSE", "type": "Minimize"}}
    told = {"metrics": {"MSE": 2.0}, "baseline": {"MSE": 3.0}}
    record = replace(RECORD, search=search, evaluation=told)
    assert record.beats_baseline is True
    assert RECORD.beats_baseline is True
    assert replace(RECORD, evaluation=None).beats_baseline is None


def test_document_holds_the_record_and_what_follows_from_it() -> None:
    document = json.loads(RECORD.to_json())
    assert (document["status"], document["metric"], document["beats_baseline"]) == (
        "succeeded",
        "F1",
        True,
    )
    assert document["candidates"] == CANDIDATES
