"""The search in rounds against a real engine, by `dag.test()`."""

from __future__ import annotations

import json

import pytest

from tests.dags.test_train_end_to_end import TINY, result, stored

pytestmark = [
    pytest.mark.dag_run,
    pytest.mark.engine,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore"),
]

# A warm-up longer than any trial has steps fails a trial; one that is searched cannot.
SEARCH = {
    "tuning_max_jobs": 4,
    "tuning_max_steps": 3,
    "tuning_instance_count": 1,
    "tuning_ranges": {"learning_rate": {"min_value": 1e-4, "max_value": 1e-2}},
    "budget_usd": 9,
}


def test_rounds_prune_and_the_training_takes_the_winner(database, aws_connection, s3):
    dag = database("tune_mapped")
    dag_run = dag.test(run_conf={**TINY, **SEARCH})

    states = {}
    for ti in dag_run.get_task_instances():
        states.setdefault(ti.task_id, []).append(str(ti.state))
    assert str(dag_run.state) == "success"
    assert states["trials_1"] == states["trials_2"] == ["success", "success"]
    assert [states[f"trials_{number}"] for number in (3, 4, 5, 6)] == [["skipped"]] * 4
    found = result(dag_run, "tune")
    assert (found["is_complete"], found["ended_by"]) == (True, "service")
    record = json.loads(stored(s3, result(dag_run, "report")["report_json"]))
    assert [each["task_id"] for each in record["jobs"]] == ["tune"] * 4 + ["train", "evaluate"]
    assert record["ledger"]["unsettled"] == []
    assert len(record["ledger"]["entries"]) == 6
    trials = record["tuning"]["trials"]
    assert [each["definition"].split(", ")[1] for each in trials] == ["3 steps"] * 2 + [
        "6 steps"
    ] * 2
    assert trials[0]["tuned_hyperparameters"] in [
        each["tuned_hyperparameters"] for each in trials[2:]
    ]
    best = min(trials[2:], key=lambda each: each["objective"])
    assert best["training_job_name"] == found["best"]["training_job_name"]
    assert record["conf"]["learning_rate"] == best["tuned_hyperparameters"]["learning_rate"]
    assert found["cost_usd"] == pytest.approx(sum(each["cost_usd"] for each in trials))
