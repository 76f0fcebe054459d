"""Rules beside real jobs of two ranks on two hosts, with checkpoints and spot capacity, which the service never had."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.jobs.job import Job
from sagemaker_engine.jobs.rule_watch import RuleWatch
from sagemaker_engine.state import database
from sagemaker_engine.state.jobs import ResourceKind
from sagemaker_engine.state.store import JobStore
from tests.contract.debugger import SCRIPT, STOP, code_channel, rule, statuses, training
from tests.limits import EVENT_LIMIT_S
from tests.sagemaker_engine.jobs.conftest import (
    BUCKET,
    SPOT,
    put_faults,
    statuses as secondary_statuses,
    wait_for,
)

if TYPE_CHECKING:
    from pathlib import Path

    from sagemaker_engine.state.jobs import JobRow
    from tests.sagemaker_engine.jobs.conftest import JobBench

LAST_STEP = 600
FOLDER = "/opt/ml/checkpoints/statistics"
# A rank for each host, which counts its own attempts, ten steps each, by what the checkpoint folder holds.
SHELL = (
    "r=$(python3 -c \"import json;c=json.load(open('/opt/ml/input/config/resourceconfig.json'));"
    "print(c['hosts'].index(c['current_host']))\");"
    f"n=$(ls {FOLDER} 2>/dev/null | grep -c rank-0000$r); mkdir -p /opt/ml/checkpoints/step-$n;"
    "echo state > /opt/ml/checkpoints/step-$n/state;"
)


def train(bench: JobBench, *, bad: int, attempt: str = "1", begin: str = "0") -> JobRow:
    """Run a job of two instances whose NonFinite stops it, and return it."""
    bench.objects.put(BUCKET, "code/train.py", SCRIPT.encode())
    words = training(
        folder=FOLDER, rank="$r", world=2, attempt=attempt, begin=begin, bad=bad, last=LAST_STEP
    )
    return bench.run(
        "job",
        SHELL + words,
        instances=2,
        InputDataConfig=[code_channel(f"s3://{BUCKET}/code/")],
        RoleArn="arn:aws:iam::123456789012:role/any",
        DebugHookConfig={"S3OutputPath": f"s3://{BUCKET}/debug"},
        DebugRuleConfigurations=[
            rule("nan", "NonFinite", action_json=STOP),
            rule("twins", "ReplicaDivergence"),
        ],
        **SPOT,
    )


def lines(bench: JobBench) -> list[dict[str, Any]]:
    """Return every line of the statistics that are in S3."""
    keys = [each.key for each in bench.objects.list(BUCKET, "checkpoints/statistics/")]
    found = []
    for key in keys:
        with bench.objects.open(BUCKET, key) as file:
            found += [json.loads(line) for line in file.read().splitlines()]
    return found


def test_bad_run_is_stopped_long_before_its_end_and_its_checkpoint_kept(bench: JobBench) -> None:
    row = train(bench, bad=10)

    assert row.status == "Stopped"
    assert statuses(row.state) == {"nan": "IssuesFound", "twins": "Error"}
    assert 10 <= max(line["step"] for line in lines(bench) if "step" in line) < LAST_STEP
    kept = [each.key for each in bench.objects.list(BUCKET, "checkpoints/step-")]
    assert kept == ["checkpoints/step-0/state"]


@pytest.mark.slow
def test_rules_judge_on_over_an_interruption(bench: JobBench) -> None:
    put_faults(bench, {"what": "interrupt", "at": {"step": 15}})

    row = train(bench, bad=25, attempt="$((n+1))", begin="$((10*n))")

    assert secondary_statuses(row).count("Training") == 2
    assert row.status == "Stopped"
    (nan, _) = row.state["DebugRuleEvaluationStatuses"]
    assert "NonFinite at step 25" in nan["StatusDetails"]
    assert {line["attempt"] for line in lines(bench) if "attempt" in line} == {1, 2}


def test_statistics_of_an_earlier_job_in_the_same_folder_are_no_reason_to_stop(
    bench: JobBench,
) -> None:
    old = {"format": "trainyard-statistics", "version": 1, "rank": 0, "world_size": 1, "attempt": 1}
    told = [
        {**old, "resumed_at": 0, "time": 1000.0, "tensors": {}},
        {"kind": "step", "step": 1, "time": 1001.0, "loss": "nan"},
    ]
    key = "checkpoints/statistics/rank-00000.attempt-0001.part-0001.jsonl"
    bench.objects.put(BUCKET, key, "".join(json.dumps(each) + "\n" for each in told).encode())
    bench.objects.put(BUCKET, "code/train.py", SCRIPT.encode())

    row = bench.run(
        "job",
        training(folder=FOLDER, attempt="2"),
        InputDataConfig=[code_channel(f"s3://{BUCKET}/code/")],
        RoleArn="arn:aws:iam::123456789012:role/any",
        DebugRuleConfigurations=[rule("nan", "NonFinite", action_json=STOP)],
        **SPOT,
    )

    assert row.status == "Completed"
    assert statuses(row.state) == {"nan": "NoIssuesFound"}
    arn = row.state["DebugRuleEvaluationStatuses"][0]["RuleEvaluationJobArn"]
    assert bench.row(arn.rpartition("/")[2], ResourceKind.PROCESSING).status == "Completed"


def watch_of(bench: JobBench, *, store: JobStore | None = None, **members: Any) -> RuleWatch:
    """Return the rules of a job that is stored and not run."""
    arn = "arn:aws:sagemaker:us-east-1:123456789012:training-job/job"
    request = {"RoleArn": "arn:aws:iam::123456789012:role/any", **members}
    request["OutputDataConfig"] = {"S3OutputPath": f"s3://{BUCKET}/out"}
    now, folder = time.time(), bench.settings.job_folder(ResourceKind.TRAINING, "job")
    state = {"TrainingJobStatus": "InProgress", "SecondaryStatus": "Training"}
    transitions = [{"Status": "Training", "StartTime": now}]
    bench.store.create(
        ResourceKind.TRAINING,
        "job",
        arn=arn,
        request=request,
        created_at=now,
        state={**state, "SecondaryStatusTransitions": transitions},
    )
    folder.mkdir(parents=True)
    job = Job(
        kind=ResourceKind.TRAINING,
        name="job",
        arn=arn,
        request=request,
        settings=bench.settings,
        store=store or bench.store,
        objects=bench.objects,  # type: ignore[arg-type]  # nobody asks for an object
        folder=folder,
        created_at=now,
    )
    return RuleWatch(job=job, folders=[])


def rule_threads() -> list[str]:
    """Return the names of the threads that live for rules."""
    return [each.name for each in threading.enumerate() if each.name in {"rules", "verdicts"}]


def test_rules_whose_process_cannot_start_are_in_error_and_end_no_training(bench: JobBench) -> None:
    watch = watch_of(bench, DebugRuleConfigurations=[rule("nan", "NonFinite")])
    (watch.job.folder / "rules.json").mkdir()

    watch.start()
    watch.trains(time.time())
    watch.finish()

    (nan,) = bench.row("job").state["DebugRuleEvaluationStatuses"]
    assert nan["RuleEvaluationStatus"] == "Error"
    assert "did not start: IsADirectoryError" in nan["StatusDetails"]
    rule_job = bench.row(nan["RuleEvaluationJobArn"].rpartition("/")[2], ResourceKind.PROCESSING)
    assert rule_job.status == "Failed"


def test_rules_without_the_package_that_evaluates_them_say_so(
    bench: JobBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sagemaker_engine.jobs.rule_watch.SOURCE_FOLDER", tmp_path)
    watch = watch_of(bench, DebugRuleConfigurations=[rule("nan", "NonFinite")])

    watch.start()
    watch.finish()

    (nan,) = bench.row("job").state["DebugRuleEvaluationStatuses"]
    assert (
        "the package `trainyard`, which evaluates rules, is not installed" in nan["StatusDetails"]
    )


def test_job_without_rules_has_no_thread_until_it_is_given_some(bench: JobBench) -> None:
    watch = watch_of(bench)
    watch.start()
    watch.heed_update()
    assert rule_threads() == []

    later = {"ProfilerRuleConfigurations": [rule("late", "MaxInitializationTime")]}
    bench.store.update_request(ResourceKind.TRAINING, "job", lambda request: request.update(later))
    wait_for(lambda: watch.heed_update() or rule_threads(), lambda found: len(found) == 2)

    watch.finish()
    assert statuses(bench.row("job").state, "Profiler") == {"late": "Error"}
    assert rule_threads() == []


@pytest.mark.parametrize("rules", [[], [rule("nan", "NoSuchRule")]], ids=["none", "one"])
def test_an_ended_job_is_not_modified_by_its_rules(
    bench: JobBench, rules: list[dict[str, Any]]
) -> None:
    """A client that saw `Completed` and reads the job again must see the same LastModifiedTime."""
    watch = watch_of(bench, DebugRuleConfigurations=rules)
    watch.start()
    watch.finish()
    watch.job.finish("Completed")
    ended = bench.row("job")

    watch.finish()

    assert bench.row("job") == ended


def test_stop_is_sent_after_a_bad_line_and_while_the_store_was_busy(
    bench: JobBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.05)
    rules = [rule("nan", "NonFinite", action_json=STOP)]
    store = JobStore(bench.settings.database_path)
    watch = watch_of(bench, store=store, DebugRuleConfigurations=rules)
    watch.start()
    fired = {"name": "nan", "status": "IssuesFound", "details": "at step 3", "step": 3}
    said = ["no JSON", json.dumps({"verdicts": [{}]}), json.dumps({"verdicts": [fired]})]
    command = [sys.executable, "-c", f"print({chr(10).join(said)!r})"]
    with sqlite3.connect(bench.settings.database_path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        receiver = threading.Thread(target=watch._receive, args=(process,))
        receiver.start()
        wait_for(lambda: caplog.text, lambda text: "StopTraining of job is not stored" in text)
        other.execute("ROLLBACK")
        receiver.join(timeout=EVENT_LIMIT_S)
    watch.finish()
    store.close()

    assert caplog.text.count("is ignored") == 2
    row = bench.row("job")
    assert row.stop_requested_at is not None
    assert statuses(row.state) == {"nan": "IssuesFound"}
