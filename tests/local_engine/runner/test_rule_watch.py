"""Rules beside real jobs of two ranks on two hosts, with checkpoints and spot capacity, which the service never had."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from include.local_engine.store import JobKind
from tests.contract.debugger import SCRIPT, STOP, code_channel, rule, statuses, training
from tests.local_engine.runner.conftest import (
    BUCKET,
    SPOT,
    put_faults,
    statuses as secondary_statuses,
)

if TYPE_CHECKING:
    from include.local_engine.store import JobRow
    from tests.local_engine.runner.conftest import Yard

FOLDER = "/opt/ml/checkpoints/statistics"
# A rank for each host, which counts its own attempts, ten steps each, by what the checkpoint folder holds.
SHELL = (
    "r=$(python3 -c \"import json;c=json.load(open('/opt/ml/input/config/resourceconfig.json'));"
    "print(c['hosts'].index(c['current_host']))\");"
    f"n=$(ls {FOLDER} 2>/dev/null | grep -c rank-0000$r); mkdir -p /opt/ml/checkpoints/step-$n;"
    "echo state > /opt/ml/checkpoints/step-$n/state;"
)


def train(yard: Yard, *, bad: int, attempt: str = "1", begin: str = "0") -> JobRow:
    """Run a job of two instances whose NonFinite stops it, and return it."""
    yard.objects.put(BUCKET, "code/train.py", SCRIPT.encode())
    words = training(
        folder=FOLDER, rank="$r", world=2, attempt=attempt, begin=begin, bad=bad, last=600
    )
    return yard.run(
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


def lines(yard: Yard) -> list[dict[str, Any]]:
    """Return every line of the statistics that are in S3."""
    keys = [each.key for each in yard.objects.list(BUCKET, "checkpoints/statistics/")]
    found = []
    for key in keys:
        with yard.objects.open(BUCKET, key) as file:
            found += [json.loads(line) for line in file.read().splitlines()]
    return found


def test_bad_run_is_stopped_within_two_seconds_and_its_checkpoint_kept(yard: Yard) -> None:
    row = train(yard, bad=10)

    assert row.status == "Stopped"
    assert statuses(row.state) == {"nan": "IssuesFound", "twins": "NoIssuesFound"}
    stopping = next(
        each["StartTime"]
        for each in row.state["SecondaryStatusTransitions"]
        if each["Status"] == "Stopping"
    )
    bad_at = min(line["time"] for line in lines(yard) if line.get("loss") == "nan")
    assert 0 < stopping - bad_at < 2.0
    kept = [each.key for each in yard.objects.list(BUCKET, "checkpoints/step-")]
    assert kept == ["checkpoints/step-0/state"]


def test_rules_judge_on_over_an_interruption(yard: Yard) -> None:
    put_faults(yard, {"what": "interrupt", "at": {"seconds": 1.5}})

    row = train(yard, bad=25, attempt="$((n+1))", begin="$((10*n))")

    assert secondary_statuses(row).count("Training") == 2
    assert row.status == "Stopped"
    (nan, _) = row.state["DebugRuleEvaluationStatuses"]
    assert "NonFinite at step 25" in nan["StatusDetails"]
    assert {line["attempt"] for line in lines(yard) if "attempt" in line} == {1, 2}


def test_statistics_of_an_earlier_job_in_the_same_folder_are_no_reason_to_stop(yard: Yard) -> None:
    old = {"format": "trainyard-statistics", "version": 1, "rank": 0, "world_size": 1, "attempt": 1}
    told = [
        {**old, "resumed_at": 0, "time": 1000.0, "tensors": {}},
        {"kind": "step", "step": 1, "time": 1001.0, "loss": "nan"},
    ]
    key = "checkpoints/statistics/rank-00000.attempt-0001.part-0001.jsonl"
    yard.objects.put(BUCKET, key, "".join(json.dumps(each) + "\n" for each in told).encode())
    yard.objects.put(BUCKET, "code/train.py", SCRIPT.encode())

    row = yard.run(
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
    assert yard.row(arn.rpartition("/")[2], JobKind.PROCESSING).status == "Completed"
