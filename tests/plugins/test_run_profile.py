"""What a training synced to S3 becomes its run's profile, with the traces as far as they are small."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.tasks.end_to_end import training_statistics
from trainyard_airflow.tasks.end_to_end.profile import write_profile
from trainyard_airflow.triggers.synced_statistics import place_of_statistics

pytestmark = pytest.mark.engine

TRACES = (
    "trace-rank-00000.attempt-0001.steps-10-13.json.gz",
    "trace-rank-00001.attempt-0001.steps-10-13.json.gz",
)


def statistics(rank: int) -> bytes:
    """Return a rank's file: 100 steps that wait for data for more than half of their time, and two samples."""
    header = {
        "format": "trainyard-statistics",
        "version": 1,
        "rank": rank,
        "world_size": 2,
        "attempt": 1,
        "resumed_at": 0,
        "time": 1000.0,
        "host": f"algo-{rank + 1}",
        "tensors": {"weights": [["w", 4, "Linear"]]},
    }
    steps = [
        {
            "kind": "step",
            "step": step,
            "time": 1000.0 + step,
            "step_seconds": 1.0,
            "data_wait_seconds": 0.6,
            "local_seconds": 0.7,
            "tensors": {"weights": {"l2": [1.0]}},
        }
        for step in range(1, 101)
    ]
    hosts = [
        {
            "kind": "host",
            "step": at,
            "time": 1000.0 + at,
            "cpu_percent": 40.0,
            "memory_bytes": 2**30,
        }
        for at in (20, 60)
    ]
    lines = [header, *sorted([*steps, *hosts], key=lambda each: each["time"])]
    return "".join(json.dumps(each) + "\n" for each in lines).encode()


@pytest.fixture
def place(aws_connection: Any, task: Any) -> str:
    """The prefix, in the connection's bucket, of a run of its own."""
    return f"s3://{aws_connection.bucket}/{task.run_id}"


def written(s3: Any, bucket: str, prefix: str) -> dict[str, bytes]:
    """Return what lies below a prefix, by name."""
    found = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return {
        each["Key"].removeprefix(prefix): s3.get_object(Bucket=bucket, Key=each["Key"])[
            "Body"
        ].read()
        for each in found
    }


def profiled(place: str, **members: str) -> dict[str, Any]:
    """Write the profile of what the training left."""
    found = write_profile(
        AwsClients(ConnectionArguments()).client("s3"),
        training={"name": "train-1", "checkpoint_s3_uri": f"{place}/checkpoints", **members},
        conf={},
        run_id="manual__1",
        to=f"{place}/report",
    )
    assert found is not None
    return found


def test_statistics_and_traces_come_beside_the_report(
    s3: Any, aws_connection: Any, task: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_statistics, "MOST_TRACE_BYTES", 1000)
    bucket, source = aws_connection.bucket, f"{task.run_id}/checkpoints/statistics/"
    for rank in (0, 1):
        name = f"rank-0000{rank}.attempt-0001.part-0001.jsonl"
        s3.put_object(Bucket=bucket, Key=source + name, Body=statistics(rank))
    for name, size in zip(TRACES, (999, 1001), strict=True):
        s3.put_object(Bucket=bucket, Key=source + name, Body=b"x" * size)

    summary = profiled(place)

    files = written(s3, bucket, f"{task.run_id}/report/")
    assert summary["bottleneck"]["title"] == "Waiting for data"
    assert set(files) == {
        "profile.html",
        "profile.json",
        "statistics/rank-00000.attempt-0001.part-0001.jsonl.gz",
        "statistics/rank-00001.attempt-0001.part-0001.jsonl.gz",
        f"statistics/{TRACES[0]}",
    }
    packed = files["statistics/rank-00001.attempt-0001.part-0001.jsonl.gz"]
    assert gzip.decompress(packed) == statistics(1)
    document = json.loads(files["profile.json"])
    assert document["num_ranks"] == 2
    assert {each["host"] for each in document["usage"][0]["hosts"]} == {"algo-1", "algo-2"}
    here, away = document["traces"]
    assert here["file"] == f"statistics/{TRACES[0]}"
    assert away["file"] == f"{place}/checkpoints/statistics/{TRACES[1]}"


def test_statistics_of_a_request_with_a_hook_are_read_where_the_hook_writes(
    s3: Any, aws_connection: Any, task: Any, place: str
) -> None:
    described = {
        "TrainingJobName": "train-1",
        "TrainingJobStatus": "Completed",
        "DebugHookConfig": {"S3OutputPath": f"{place}/out/"},
    }
    key = f"{task.run_id}/out/train-1/debug-output/rank-00000.attempt-0001.part-0001.jsonl"
    s3.put_object(Bucket=aws_connection.bucket, Key=key, Body=statistics(0))
    snapshot = JobSnapshot.from_describe(described)

    summary = profiled(place, hook_s3_uri=snapshot.to_dict()["hook_s3_uri"])

    assert summary["bottleneck"]["title"] == "Waiting for data"
    assert place_of_statistics(snapshot) == f"{place}/out/train-1/debug-output/"


def test_a_training_that_syncs_nothing_has_no_profile() -> None:
    assert write_profile(None, training={}, conf={}, run_id="manual__1", to="s3://b/report") is None


def test_a_training_without_statistics_says_so(
    s3: Any, aws_connection: Any, task: Any, place: str
) -> None:
    summary = profiled(place)

    assert "no statistics below s3://" in summary["step_time"]["why_none"]
    assert summary["bottleneck"]["title"] == "Not known"
    page = written(s3, aws_connection.bucket, f"{task.run_id}/report/")["profile.html"]
    assert b"the hyperparameters have statistics=off" in page


def test_more_than_can_be_read_is_left_and_said(
    s3: Any, aws_connection: Any, task: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_statistics, "MOST_BYTES", 100)
    key = f"{task.run_id}/checkpoints/statistics/rank-00000.attempt-0001.part-0001.jsonl"
    s3.put_object(Bucket=aws_connection.bucket, Key=key, Body=statistics(0))

    summary = profiled(place)

    assert "use make profile" in summary["step_time"]["why_none"]
    files = written(s3, aws_connection.bucket, f"{task.run_id}/report/")
    assert set(files) == {"profile.html", "profile.json"}


def test_statistics_that_cannot_be_read_are_said_and_cost_nothing_else(
    s3: Any, aws_connection: Any, task: Any, place: str
) -> None:
    key = f"{task.run_id}/checkpoints/statistics/rank-00000.attempt-0001.part-0001.jsonl"
    s3.put_object(Bucket=aws_connection.bucket, Key=key, Body=b'{"format": "other"}\n')

    summary = profiled(place)

    assert "the training's statistics cannot be read" in summary["step_time"]["why_none"]
