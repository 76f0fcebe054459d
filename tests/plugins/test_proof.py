"""What lies beside the report is enough to recount its continuity, read from a real log."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError

from sagemaker_engine.testing import faults
from tests.runs.interrupted_run import Break, InterruptedRun, has_every_sample_once
from tests.runs.sample_run import built_record
from trainyard.rules.configuration import configured_rules
from trainyard.rules.document import rules_document, with_log
from trainyard.rules.evaluation import evaluate
from trainyard.rules.records import Facts, StepRecord
from trainyard.runs.builder import job_record
from trainyard.runs.continuity.log_lines import read_log
from trainyard.runs.report.page import rules_view
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.hooks.training_log import training_log
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.tasks.end_to_end.evidence import INCOMPLETE_LOG_NAME, write_proof
from verify.__main__ import main

pytestmark = pytest.mark.engine

NAMES = ("continuity.json", "index.json", "rules.json", "training_log.jsonl.gz")
# The first life waits to be interrupted. More than CloudWatch's page of 1 MiB lies between the lines.
PRINTS = """
import json, os, pathlib, time

seen = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"), "checkpoints", "seen")
lives = json.loads(pathlib.Path(__file__).with_name("lives.json").read_text())
number = int(seen.exists())
seen.touch()
for line in lives[number]:
    print("noise " + "x" * 1000 + "\\n" + 80 * ("y" * 1000 + "\\n") + line, flush=True)
while number == 0:
    time.sleep(0.05)
"""
# Steps are logged by threes and at checkpoints: the last line of the first life speaks of step 18.
RUN = InterruptedRun(
    num_steps=30,
    log_interval=3,
    checkpoint_interval=5,
    logs_checkpoints=True,
    breaks=(Break(after_steps=18),),
)
INTERRUPT = {"what": "interrupt", "at": {"step": 18}, "attempt": 1, "notice_s": 1}


@pytest.fixture
def printed(aws_connection: Any, task: Any, script: Any) -> dict[str, Any]:
    """The result of a spot job that printed a run's lines among a lot else, interrupted once."""
    spec = script(
        PRINTS,
        use_spot_instances=True,
        max_wait=3600,
        checkpoint_s3_uri=f"s3://{aws_connection.bucket}/{task.run_id}/checkpoints",
    )
    lives = [[line.text for line in life] for _, life in groupby(RUN.lines, attrgetter("stream"))]
    (Path(spec["source_dir"]) / "lives.json").write_text(json.dumps(lives))
    made = TrainingJobOperator(task_id="train", spec=spec, deferrable=False, poll_interval_s=1)
    with faults(aws_connection.endpoint_url, INTERRUPT):
        result: dict[str, Any] = type(made).execute.__wrapped__(made, task.context)
    return result


@pytest.mark.slow
def test_an_interrupted_jobs_log_is_recounted_from_what_the_report_leaves(
    printed: dict[str, Any], aws_connection: Any, s3: Any, task: Any, tmp_path: Path
) -> None:
    clients, prefix = AwsClients(ConnectionArguments()), f"{task.run_id}/report"
    jobs = [job_record("train", printed)]
    to = f"s3://{aws_connection.bucket}/{prefix}"

    proof = write_proof(
        clients.client("logs"),
        S3Objects(clients.client("s3")),
        jobs=jobs,
        shard_index=RUN.index(),
        conf={},
        to=to,
    )
    told = proof.continuity

    read = training_log(clients.client("logs"), job_name=printed["job_name"])
    assert [line.text for line in read] == [line.text for line in RUN.lines]
    first, second = told.attempts
    assert (first.ended_by, second.ended_by) == ("interrupted", "completed")
    assert (first.steps_redone, second.resumed_at, told.final_step) == (3, 15, 30)
    assert has_every_sample_once(told)
    assert second.waiting_seconds > 0
    for name in NAMES:
        s3.download_file(aws_connection.bucket, f"{prefix}/{name}", str(tmp_path / name))
    record = built_record(dag_id="d", run_id="r", jobs=jobs, continuity=told.to_dict())
    (tmp_path / "report.json").write_text(record.to_json())
    assert main([str(tmp_path)]) == 0
    assert json.loads((tmp_path / "rules.json").read_text()) == proof.rules
    judged = {each["name"]: each["num_judged"] for each in (proof.rules or {})["verdicts"]}
    assert judged["NonFinite"] == sum(" loss=" in line.text for line in RUN.lines)


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
        conf={},
        to=f"s3://{aws_connection.bucket}/{task.run_id}/report",
    )

    assert told.rules is None
    assert "the training log could not be read" in str(told.continuity.why_unknown)
    assert told.continuity.billed_usd == RUN.jobs[0].cost["cost_usd"]
    found = s3.list_objects_v2(Bucket=aws_connection.bucket, Prefix=f"{task.run_id}/report/")
    names = [each["Key"].rpartition("/")[2] for each in found["Contents"]]
    assert names == [NAMES[0], INCOMPLETE_LOG_NAME]


KNOWN = Facts(precision="bf16", skipped_steps=0)


def verdicts(job: str, *, num_records: int, text: str, service: bool = False) -> bytes:
    """Return what the watch of a job leaves: an issue of NonFinite at step 4 where there is a text."""
    says = {"name": "NonFinite", "status": "NoIssuesFound", "details": ""}
    record = StepRecord(step=4, rank=0, loss=math.nan if text else 1.0)
    content = rules_document(evaluate(configured_rules(["NonFinite"]), [record], KNOWN))
    content |= {"job": job, "num_records": num_records, "service_rules": [says] * service}
    return json.dumps(content).encode()


class ReportRun:
    """Writes the proof of some jobs, whose verdicts lie below an output."""

    def __init__(self, bucket: str, run_id: str, logs: Any = None) -> None:
        clients, self.place = AwsClients(ConnectionArguments()), f"s3://{bucket}/{run_id}"
        self.objects = S3Objects(clients.client("s3"))
        self._logs = logs or clients.client("logs")

    def put(self, job: str, document: bytes, *, name: str = "rules.json") -> None:
        """Leave what the watch of a job leaves."""
        uri = f"{self.place}/output/{job}/rule-output/{name}"
        self.objects.write(uri, document, content_type="application/json")

    def rules(self, jobs: Any, *, watched: bool = True, has_failed_watch: bool = False) -> Any:
        """Return rules.json."""
        return write_proof(
            self._logs,
            self.objects,
            jobs=jobs,
            shard_index=None,
            conf={},
            to=f"{self.place}/report",
            output=f"{self.place}/output" if watched else None,
            has_failed_watch=has_failed_watch,
        ).rules


class ProofLogs:
    """CloudWatch Logs with the lines of a run in the stream of every job."""

    def get_paginator(self, _: str) -> ProofLogs:
        return self

    def paginate(self, *, logStreamNamePrefix: str, **_: str) -> list[dict[str, Any]]:  # noqa: N803
        return [{"logStreams": [{"logStreamName": f"{logStreamNamePrefix}algo-1"}]}]

    def get_log_events(self, *, nextToken: str = "", **_: Any) -> dict[str, Any]:  # noqa: N803
        lines = () if nextToken else RUN.lines
        events = [{"message": each.text, "timestamp": each.time_ms} for each in lines]
        return {"events": events, "nextForwardToken": "end"}


class LostLogs(ProofLogs):
    """CloudWatch Logs that cannot be reached after the first page of a stream."""

    def get_log_events(self, *, nextToken: str = "", **names: Any) -> dict[str, Any]:  # noqa: N803
        if nextToken:
            raise EndpointConnectionError(endpoint_url="https://logs.us-east-1.amazonaws.com")
        return super().get_log_events(**names)


def test_the_lines_before_a_logs_loss_are_kept_as_incomplete(
    aws_connection: Any, task: Any, tmp_path: Path
) -> None:
    report = ReportRun(aws_connection.bucket, task.run_id)

    proof = write_proof(
        LostLogs(),
        report.objects,
        jobs=RUN.jobs,
        shard_index=None,
        conf={},
        to=f"{report.place}/report",
    )

    kept = tmp_path / INCOMPLETE_LOG_NAME
    kept.write_bytes(report.objects.read(f"{report.place}/report/{INCOMPLETE_LOG_NAME}"))
    assert [each.text for each in read_log(kept)] == [each.text for each in RUN.lines]
    assert report.objects.read_or_none(f"{report.place}/report/{NAMES[3]}") is None
    assert INCOMPLETE_LOG_NAME in str(proof.continuity.why_unknown)
    assert (proof.continuity.final_step, proof.rules) == (None, None)


def test_the_watched_jobs_verdicts_come_before_those_of_the_log(
    aws_connection: Any, task: Any
) -> None:
    report, job = ReportRun(aws_connection.bucket, task.run_id), RUN.jobs[0]
    report.put(job.name, verdicts(job.name, num_records=9, text="nan"))

    found = report.rules(RUN.jobs)

    assert found["judged"] == "statistics"
    assert "unwatched" not in found
    assert [each["num_issues"] for each in found["verdicts"]] == [1]
    assert json.loads(report.objects.read(f"{report.place}/report/rules.json")) == found
    assert report.rules(RUN.jobs, watched=False) is None, "no watch, and no line in the log"
    report.put(job.name, verdicts(job.name, num_records=0, text=""))
    assert report.rules(RUN.jobs) is None


def test_verdicts_of_some_jobs_do_not_pass_for_those_of_all(aws_connection: Any, task: Any) -> None:
    first = RUN.jobs[0]
    second, never_started = replace(first, name="a-2"), replace(first, name="a-3", started_at=None)
    report = ReportRun(aws_connection.bucket, task.run_id)
    with_log = ReportRun(aws_connection.bucket, task.run_id, ProofLogs())
    report.put(first.name, verdicts(first.name, num_records=9, text="nan"))

    by_log, found = with_log.rules([first, second]), report.rules([first, second])
    record = built_record(dag_id="d", run_id="r", jobs=[first, second], rules=by_log)

    assert (by_log["judged"], by_log["unwatched"]) == ("statistics and log", ["a-2"])
    assert issues_of(by_log, "NonFinite") == [4], "what the watch of the first job found"
    assert len(by_log["verdicts"]) > 1, "and what every rule finds in the log"
    assert (found["judged"], found["unwatched"]) == ("statistics", ["a-2"]), "without a log"
    view = rules_view(record)
    assert view is not None
    assert "job a-2 was not watched to its end" in view.sentence
    assert "unwatched" not in with_log.rules([first, never_started])
    so_far = verdicts(second.name, num_records=5, text="nan")
    report.put(second.name, so_far, name="rules-so-far.json")
    half = report.rules([first, second])
    assert (issues_of(half, "NonFinite"), half["unwatched"]) == ([4, 4], ["a-2"])


def test_jobs_of_a_watch_that_failed_at_once_are_unwatched(aws_connection: Any, task: Any) -> None:
    report = ReportRun(aws_connection.bucket, task.run_id, ProofLogs())

    found = report.rules(RUN.jobs, has_failed_watch=True)

    assert (found["judged"], found["unwatched"]) == ("log", [RUN.jobs[0].name])
    assert "unwatched" not in report.rules(RUN.jobs)


def issues_of(rules: Any, name: str) -> list[int]:
    (verdict,) = [each for each in rules["verdicts"] if each["name"] == name]
    return [each["step"] for each in verdict["issues"]]


def test_the_log_adds_to_the_verdicts_on_statistics_what_they_lack() -> None:
    def document(*steps: int, name: str = "NonFinite") -> dict[str, Any]:
        records = [StepRecord(step=each, rank=0, loss=math.nan) for each in steps]
        return rules_document(evaluate(configured_rules([name]), records, KNOWN))

    told = with_log(document(4), document(9)) | {"judged": "x"}

    assert issues_of(told, "NonFinite") == [4, 9]
    assert told["worst"] == "error"
    same = with_log(document(4), document(4))
    assert same["verdicts"][0]["num_issues"] == 1
    other = with_log(document(4, name="LRSanity"), document(4))
    assert {each["name"] for each in other["verdicts"]} == {"NonFinite", "LRSanity"}


def test_verdicts_of_the_service_count_without_a_record_of_the_ranks(
    aws_connection: Any, task: Any
) -> None:
    report, job = ReportRun(aws_connection.bucket, task.run_id), RUN.jobs[0]
    report.put(job.name, verdicts(job.name, num_records=0, text="", service=True))

    assert report.rules(RUN.jobs)["judged"] == "statistics"
