"""The comparison of strategies against a real engine, by `dag.test()`."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from tests.dags.test_train_end_to_end import TINY, result, stored

pytestmark = [
    pytest.mark.dag_run,
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore"),
]

CONF = {
    **TINY,
    "max_steps": 12,
    "eval_interval": 0,
    "checkpoint_interval": -1,
    "hyperparameters": {"num_threads": 1, "eval_batches": 1, "log_interval": 3, "profile_steps": 2},
    "ranks": [1, 2],
    "strategies": [
        {"name": "ddp"},
        {"name": "broken", "hyperparameters": {"learning_rate": 1e18}, "ranks": [2]},
    ],
    "budget_usd": 9,
}


def states(dag_run: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for ti in sorted(dag_run.get_task_instances(), key=lambda each: each.map_index):
        found.setdefault(ti.task_id, []).append(str(ti.state))
    return found


def served_report(dag_id: str, run_id: str) -> str:
    """Return the page to which the button "Report" leads."""
    from airflow.utils.session import create_session

    from trainyard_airflow.pages.airflow_runs import read_run
    from trainyard_airflow.pages.app import report_file

    with create_session() as session:
        run = read_run(session, dag_id=dag_id, run_id=run_id)
    assert run is not None
    assert run.connections["report"]["aws_conn_id"] == "aws_default"
    return bytes(report_file(run, "report.html").body).decode()


@pytest.mark.slow
def test_cells_are_trained_and_compared_and_a_failed_one_says_why(database, aws_connection, s3):
    import pyarrow.parquet as pq

    dag_run = database("compare_strategies").test(run_conf=CONF)

    assert states(dag_run)["cells"] == ["success", "success", "failed"]
    assert str(dag_run.state) == "success"
    told = result(dag_run, "report")
    assert (told["status"], told["unsettled"]) == ("incomplete", [])
    assert told["cells"] == {"measured": 2, "asked": 3}
    record = json.loads(stored(s3, told["report_json"]))
    one, two, broken = record["cells"]
    assert [one["name"], two["name"], broken["name"]] == ["ddp x 1", "ddp x 2", "broken x 2"]
    assert "NonFiniteError" in broken["failure"]
    assert one["measures"]["samples_per_second"] > 0
    assert [len(each["measures"]["peak_memory_bytes"]) for each in (one, two)] == [1, 2]
    assert [each["agrees"] for each in record["rows"]] == [None, True]
    assert record["knees"][0]["strategy"] == "ddp"
    assert len(record["ledger"]["entries"]) == 3
    assert b"broken x 2" in stored(s3, told["report_html"])
    table = pq.read_table(io.BytesIO(stored(s3, told["table"]))).to_pylist()
    assert [each["status"] for each in table] == ["Completed", "Completed", "Failed"]


def test_comparison_that_cannot_work_is_refused_whole_and_says_so(database, aws_connection, s3):
    wrong = {
        "strategies": [
            {"name": "lost", "entry_point": "train_nowhere.py"},
            {"name": "smddp", "distribution": {"smdistributed": {"dataparallel": {"enabled": 1}}}},
        ],
        "ranks": [3],
    }

    dag_run = database("compare_strategies").test(run_conf={**TINY, **wrong})

    assert str(dag_run.state) == "failed"
    assert states(dag_run)["cells"] == ["upstream_failed"]
    page = served_report("compare_strategies", dag_run.run_id)
    assert page == stored(s3, result(dag_run, "report")["report_html"]).decode()
    assert "global_batch_size" in page
    assert "train_nowhere.py" in page
    assert "smdistributed.dataparallel" in page
