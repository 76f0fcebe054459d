"""Estimates of runs on a real engine: the second run of a kind is estimated by what the first one took."""

from __future__ import annotations

import json

import pytest

from tests.dags.test_train_end_to_end import result, run, stored

pytestmark = [
    pytest.mark.dag_run,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]


def test_second_run_is_estimated_by_the_first_one(database, aws_connection, s3) -> None:
    kind = {"hidden_size": 40}  # of no other test on this engine
    first, states = run(database, **kind)
    second, _ = run(database, **kind, max_steps=12)

    assert states["report"] == "success"
    before = result(first, "preflight")["plan"]["estimate"]
    assert all("of the same kind" not in each["basis"] for each in before["jobs"])
    learned = result(second, "preflight")["plan"]["estimate"]
    assert {each["basis"] for each in learned["jobs"]} == {"1 earlier job of the same kind"}
    record = json.loads(stored(s3, result(second, "report")["report_json"]))
    expected = learned["usd"]["expected"]
    assert record["cost"]["estimate_usd"] == learned["usd"]
    assert record["cost"]["estimate_error"] == pytest.approx(
        record["cost"]["total_usd"] / expected - 1
    )
