"""The search in rounds against a real engine, by `dag.test()`."""

from __future__ import annotations

import json

import pytest

from tests.dags.test_train_end_to_end import TINY, result, stored

pytestmark = [
    pytest.mark.dag_run,
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore"),
]

SEARCH = {
    "tuning_max_jobs": 2,
    "tuning_max_parallel_jobs": 1,
    "tuning_max_steps": 3,
    "tuning_instance_count": 1,
    "tuning_ranges": {"learning_rate": {"min_value": 1e-4, "max_value": 1e-2}},
    "budget_usd": 9,
    "hyperparameters": {"num_threads": 1, "eval_batches": 1},
}


@pytest.mark.slow
def test_a_trial_goes_on_to_a_long_training_and_the_final_one_takes_the_winner(
    database, aws_connection, s3
):
    dag = database("tune_mapped")
    dag_run = dag.test(run_conf={**TINY, **SEARCH})

    states = {}
    for ti in dag_run.get_task_instances():
        states.setdefault(ti.task_id, []).append(str(ti.state))
    assert str(dag_run.state) == "success"
    assert states["trials_1"] == states["trials_2"] == ["success"]
    assert [states[f"trials_{number}"] for number in (3, 4, 5, 6)] == [["skipped"]] * 4
    found = result(dag_run, "tune")
    assert (found["is_complete"], found["ended_by"]) == (True, "service")
    record = json.loads(stored(s3, result(dag_run, "report")["report_json"]))
    assert [each["task_id"] for each in record["jobs"]] == ["tune"] * 2 + ["train", "evaluate"]
    assert record["ledger"]["unsettled"] == []
    assert len(record["ledger"]["entries"]) == 4
    trials = record["tuning"]["trials"]
    short, long = trials
    assert (short["definition"], long["definition"]) == ("trial 1, 3 steps", "trial 1, 6 steps")
    assert short["tuned_hyperparameters"] == long["tuned_hyperparameters"]
    assert found["best"]["training_job_name"] == long["training_job_name"]
    assert record["conf"]["learning_rate"] == long["tuned_hyperparameters"]["learning_rate"]
    assert found["cost_usd"] == pytest.approx(sum(each["cost_usd"] for each in trials))
