"""What lies beside the report is enough to recount its continuity, read from a real log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config

from distributed_training.hooks.aws_clients import AwsClients, ConnectionArguments
from distributed_training.hooks.objects import S3Objects
from distributed_training.hooks.training_log import training_log
from distributed_training.operators.training_job import TrainingJobOperator
from distributed_training.pipelines.proof import write_proof
from include.runs.builder import build_run_record, job_record
from include.runs.verify.__main__ import main
from tests.runs.interrupted_run import InterruptedRun

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

NAMES = ("continuity.json", "index.json", "training_log.jsonl.gz")
# More than CloudWatch's page of 1 MiB lies between the lines.
PRINTS = """
import json, pathlib
for line in json.loads(pathlib.Path(__file__).with_name("lines.json").read_text()):
    print("noise " + "x" * 1000 + "\\n" + 40 * ("y" * 1000 + "\\n") + line, flush=True)
"""
RUN = InterruptedRun(num_steps=30, checkpoint_interval=5, logs_checkpoints=True)


@pytest.fixture
def printed(aws_connection: Any, task: Any, script: Any, tmp_path: Path) -> dict[str, Any]:
    """The result of a training job that printed a run's lines among a lot else."""
    spec = script(PRINTS)
    lines = json.dumps([line.text for line in RUN.lines])
    (Path(spec["source_dir"]) / "lines.json").write_text(lines)
    made = TrainingJobOperator(task_id="train", spec=spec, deferrable=False, poll_interval_s=1)
    result: dict[str, Any] = type(made).execute.__wrapped__(made, task.context)
    return result


def test_a_jobs_log_is_recounted_from_what_the_report_leaves(
    printed: dict[str, Any], aws_connection: Any, s3: Any, task: Any, tmp_path: Path
) -> None:
    clients, prefix = AwsClients(ConnectionArguments()), f"{task.run_id}/report"
    jobs = [job_record("train", printed)]
    to = f"s3://{aws_connection.bucket}/{prefix}"

    told = write_proof(
        clients.client("logs"),
        S3Objects(clients.client("s3")),
        jobs=jobs,
        shard_index=RUN.index(),
        to=to,
    )

    read = training_log(clients.client("logs"), job_name=printed["job_name"])
    assert [line.text for line in read] == [line.text for line in RUN.lines]
    assert told.final_step == 30
    assert told.has_every_sample_once
    for name in NAMES:
        s3.download_file(aws_connection.bucket, f"{prefix}/{name}", str(tmp_path / name))
    record = build_run_record(dag_id="d", run_id="r", jobs=jobs, continuity=told.to_dict())
    (tmp_path / "report.json").write_text(record.to_json())
    assert main([str(tmp_path)]) == 0


def test_a_job_without_a_stream_has_no_lines(aws_connection: Any) -> None:
    logs = AwsClients(ConnectionArguments()).client("logs")

    assert list(training_log(logs, job_name="never-started")) == []


def test_a_log_that_cannot_be_read_is_said_and_costs_nothing_else(
    aws_connection: Any, s3: Any, task: Any
) -> None:
    away = boto3.client(
        "logs",
        endpoint_url="http://127.0.0.1:9",
        region_name="us-east-1",
        config=Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1}, proxies={}),
    )

    told = write_proof(
        away,
        S3Objects(AwsClients(ConnectionArguments()).client("s3")),
        jobs=RUN.jobs,
        shard_index=None,
        to=f"s3://{aws_connection.bucket}/{task.run_id}/report",
    )

    assert "the training log could not be read" in str(told.why_unknown)
    assert told.billed_usd == RUN.jobs[0].cost["cost_usd"]
    found = s3.list_objects_v2(Bucket=aws_connection.bucket, Prefix=f"{task.run_id}/report/")
    assert [each["Key"].rpartition("/")[2] for each in found["Contents"]] == [NAMES[0], NAMES[2]]
