from __future__ import annotations

import json
from typing import Any

import pytest

from sagemaker_engine.state.jobs import JobRow, ResourceKind
from tests.sagemaker_engine.jobs.conftest import BUCKET, IMAGE, JobBench, wait_for

pytestmark = pytest.mark.engine


def start(bench: JobBench, name: str, command: str, **members: Any) -> None:
    app = {
        "ImageUri": IMAGE,
        "ContainerEntrypoint": ["/bin/sh", "-c"],
        "ContainerArguments": [command],
    }
    cluster = {"InstanceType": "ml.m5.large", "InstanceCount": members.pop("instances", 1)}
    request = {
        "AppSpecification": members.pop("app", app),
        "ProcessingResources": {"ClusterConfig": cluster},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        **members,
    }
    bench.submit(name, kind=ResourceKind.PROCESSING, **request)


def run(bench: JobBench, name: str, command: str, **members: Any) -> JobRow:
    start(bench, name, command, **members)
    return bench.wait(name, kind=ResourceKind.PROCESSING)


def output(name: str, mode: str = "EndOfJob") -> dict[str, Any]:
    s3 = {
        "S3Uri": f"s3://{BUCKET}/{name}",
        "LocalPath": f"/opt/ml/processing/output/{name}",
        "S3UploadMode": mode,
    }
    return {"Outputs": [{"OutputName": name, "S3Output": s3}]}


def test_inputs_and_outputs_are_where_the_request_says(bench: JobBench) -> None:
    bench.objects.put(BUCKET, "in/a/b.txt", b"text")
    source = {
        "S3Uri": f"s3://{BUCKET}/in",
        "LocalPath": "/opt/ml/processing/input/text",
        "S3DataType": "S3Prefix",
        "S3InputMode": "File",
    }
    command = (
        "cat /opt/ml/processing/input/text/a/b.txt; echo; echo $OWN; "
        "echo result > /opt/ml/processing/output/result/r.txt"
    )

    row = run(
        bench,
        "proc",
        command,
        ProcessingInputs=[{"InputName": "text", "S3Input": source}],
        ProcessingOutputConfig=output("result"),
        Environment={"OWN": "value"},
    )

    assert row.status == "Completed"
    assert row.state["ProcessingStartTime"] <= row.state["ProcessingEndTime"]
    assert bench.log("proc", kind=ResourceKind.PROCESSING) == ["text", "value"]
    assert bench.keys("result/") == ["result/r.txt"]


def test_the_container_finds_its_configuration(bench: JobBench) -> None:
    command = (
        "cat /opt/ml/config/processingjobconfig.json; echo; cat /opt/ml/config/resourceconfig.json"
    )

    run(bench, "proc", command, instances=2)

    job, resources = bench.log("proc", "algo-2", ResourceKind.PROCESSING)
    assert json.loads(job)["ProcessingResources"]["ClusterConfig"]["InstanceCount"] == 2
    assert json.loads(resources)["current_host"] == "algo-2"
    assert json.loads(resources)["hosts"] == ["algo-1", "algo-2"]


def test_continuous_outputs_are_uploaded_while_the_job_runs(bench: JobBench) -> None:
    start(
        bench,
        "proc",
        "echo x > /opt/ml/processing/output/live/part; exec sleep 1000",
        ProcessingOutputConfig=output("live", "Continuous"),
    )

    wait_for(lambda: bench.keys("live/"), lambda keys: keys == ["live/part"])

    assert bench.row("proc", ResourceKind.PROCESSING).status == "InProgress"


def test_a_failure_keeps_the_exit_message_and_the_reason(bench: JobBench) -> None:
    command = "echo note > /opt/ml/output/message; echo 'bad rows' >&2; exit 9"

    row = run(bench, "proc", command)

    assert row.status == "Failed"
    assert row.state["ExitMessage"] == "note"
    assert row.state["FailureReason"] == "AlgorithmError: bad rows, exit code: 9"


def test_an_image_without_entry_point_is_refused_with_the_way_out(bench: JobBench) -> None:
    row = run(bench, "proc", "", app={"ImageUri": IMAGE})

    assert row.status == "Failed"
    assert "set AppSpecification.ContainerEntrypoint" in row.state["FailureReason"]


def test_a_missing_input_fails_the_job_before_anything_runs(bench: JobBench) -> None:
    source = {
        "S3Uri": f"s3://{BUCKET}/nothing",
        "LocalPath": "/opt/ml/processing/input/x",
        "S3DataType": "S3Prefix",
    }

    row = run(bench, "proc", "echo no", ProcessingInputs=[{"InputName": "x", "S3Input": source}])

    assert row.state["FailureReason"].startswith("ClientError: Data download failed: No S3 objects")
