"""report.json says everything and reads back as what was written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from tests.runs.sample_run import built_record, sample_record
from trainyard.errors import ContractError
from trainyard.runs.record import RunRecord, TaskRecord

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)


def test_a_record_reads_back_as_it_was_written() -> None:
    record = sample_record()

    assert RunRecord.from_json(record.to_json()) == record


def test_an_earlier_document_with_members_that_are_no_longer_written_is_read() -> None:
    record = sample_record()
    earlier = {**json.loads(record.to_json()), "links": {}, "resources": []}

    assert RunRecord.from_json(json.dumps(earlier)) == record


def test_a_record_of_almost_nothing_reads_back_too() -> None:
    record = built_record(dag_id="d", run_id="r")

    assert RunRecord.from_json(record.to_json()) == record
    assert record.status == "running"


@given(conf=st.dictionaries(st.text(), SCALARS), run_id=st.text(), value=SCALARS)
def test_whatever_a_conf_holds_reads_back(
    conf: dict[str, object], run_id: str, value: object
) -> None:
    record = RunRecord(dag_id="d", run_id=run_id, status="running", conf=conf, plan={"x": value})

    assert RunRecord.from_json(record.to_json()) == record


def test_the_document_has_what_a_reader_looks_for() -> None:
    data = json.loads(sample_record().to_json())

    assert data["run_id"] == "manual__2026-11-21T10:15:00+00:00"
    assert {task["task_id"] for task in data["tasks"]} >= {"shard", "train", "evaluate"}
    assert {"file", "rows", "bytes", "sha256"} <= set(data["dataset"]["shards"][0])
    train = data["jobs"][0]
    assert {
        "name",
        "status",
        "instance_type",
        "instance_count",
        "attempts",
        "billable_seconds",
        "training_seconds",
        "final_metrics",
        "artifact_uri",
        "artifact_sha256",
    } <= set(train)
    assert data["dataset"]["fingerprint"]
    assert data["code_sha256"]
    assert data["model_package_arn"]
    assert data["cost"]["total_usd"] > 0


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "trainyard-run", "version": 2}', '{"format": "x", "version": 1}'],
)
def test_another_document_is_refused(text: str) -> None:
    with pytest.raises(ContractError, match="the document is not a run record"):
        RunRecord.from_json(text)


def test_the_last_job_of_a_task_is_found() -> None:
    record = sample_record()

    job = record.job_of("train")

    assert job is not None
    assert job.succeeded
    assert record.job_of("shard") is None


@pytest.mark.parametrize(
    ("start", "end", "seconds"), [(1.0, 4.5, 3.5), (1.0, None, None), (None, None, None)]
)
def test_a_task_that_has_not_ended_has_no_duration(
    start: float | None, end: float | None, seconds: float | None
) -> None:
    assert TaskRecord(task_id="t", state=None, start=start, end=end).seconds == seconds
