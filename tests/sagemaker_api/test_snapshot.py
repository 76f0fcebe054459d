"""A Describe answer becomes one value that says how the job stands."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from trainyard.errors import ContractError
from trainyard.sagemaker_api.snapshot import JobSnapshot

BEGIN = 1_795_000_000.0


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(BEGIN + seconds, UTC)


def training(**changes: Any) -> dict[str, Any]:
    spans = [
        ("Starting", 0, 10),
        ("Training", 10, 50),
        ("Interrupted", 50, 60),
        ("Training", 60, 90),
    ]
    return {
        "TrainingJobName": "job-1",
        "TrainingJobArn": "arn:job-1",
        "TrainingJobStatus": "Completed",
        "SecondaryStatus": "Completed",
        "AlgorithmSpecification": {"TrainingImage": "image:1"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 120},
        "EnableManagedSpotTraining": True,
        "CreationTime": at(0),
        "TrainingStartTime": at(10),
        "TrainingEndTime": at(95),
        "LastModifiedTime": at(95),
        "TrainingTimeInSeconds": 85,
        "BillableTimeInSeconds": 40,
        "FinalMetricDataList": [{"MetricName": "train:loss", "Value": 1.5, "Timestamp": at(90)}],
        "ModelArtifacts": {"S3ModelArtifacts": "s3://b/model.tar.gz"},
        "OutputDataConfig": {"S3OutputPath": "s3://b/output"},
        "CheckpointConfig": {"S3Uri": "s3://b/checkpoints"},
        "SecondaryStatusTransitions": [
            *({"Status": s, "StartTime": at(a), "EndTime": at(b)} for s, a, b in spans),
            {"Status": "Uploading", "StartTime": at(90), "StatusMessage": "Uploading"},
        ],
        **changes,
    }


def processing(**changes: Any) -> dict[str, Any]:
    return {
        "ProcessingJobName": "job-2",
        "ProcessingJobArn": "arn:job-2",
        "ProcessingJobStatus": "Failed",
        "ExitMessage": "no model",
        "FailureReason": "AlgorithmError: exit code: 1",
        "AppSpecification": {"ImageUri": "image:1"},
        "ProcessingResources": {
            "ClusterConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 3}
        },
        "ProcessingOutputConfig": {
            "Outputs": [{"OutputName": "out", "S3Output": {"S3Uri": "s3://b/out"}}]
        },
        "CreationTime": at(0),
        "ProcessingStartTime": at(5),
        "ProcessingEndTime": at(25),
        **changes,
    }


def test_a_training_job_is_read() -> None:
    snapshot = JobSnapshot.from_describe(training())

    assert snapshot.succeeded
    assert snapshot.is_terminal
    assert snapshot.interruptions == 1
    assert snapshot.is_spot
    assert (snapshot.instance_type, snapshot.instance_count) == ("ml.m5.large", 2)
    assert (snapshot.training_seconds, snapshot.billable_seconds) == (85, 40)
    assert snapshot.wall_seconds == 95
    assert snapshot.final_metrics == {"train:loss": 1.5}
    assert snapshot.model_artifact == "s3://b/model.tar.gz"
    assert snapshot.status_message == "Uploading"
    assert [t.seconds for t in snapshot.transitions] == [10, 40, 10, 30, None]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_metrics_that_are_not_finite_are_left_out(value: str) -> None:
    final = {"MetricName": "train:loss", "Value": float(value)}
    search = {"FinalHyperParameterTuningJobObjectiveMetric": final}
    tuning = {
        "HyperParameterTuningJobName": "search",
        "HyperParameterTuningJobStatus": "Completed",
        "BestTrainingJob": search,
    }
    automl = {
        "AutoMLJobName": "a",
        "AutoMLJobStatus": "Completed",
        "BestCandidate": {"FinalAutoMLJobObjectiveMetric": final},
    }
    described = training(FinalMetricDataList=[final, {"MetricName": "accuracy", "Value": 0.5}])

    snapshots = [JobSnapshot.from_describe(each) for each in (described, tuning, automl)]

    assert [each.final_metrics for each in snapshots] == [{"accuracy": 0.5}, {}, {}]


def test_a_processing_job_is_read() -> None:
    snapshot = JobSnapshot.from_describe(processing())

    assert snapshot.kind == "processing"
    assert not snapshot.succeeded
    assert (snapshot.failure_reason, snapshot.exit_message) == (
        "AlgorithmError: exit code: 1",
        "no model",
    )
    assert snapshot.billable_seconds == 20
    assert snapshot.outputs == {"out": "s3://b/out"}


@pytest.mark.parametrize(
    ("status", "is_terminal", "succeeded"),
    [
        ("InProgress", False, False),
        ("Stopping", False, False),
        ("Stopped", True, False),
        ("Failed", True, False),
        ("Completed", True, True),
        ("Deleting", False, False),
    ],
)
def test_only_completed_is_success(status: str, *, is_terminal: bool, succeeded: bool) -> None:
    snapshot = JobSnapshot.from_describe(training(TrainingJobStatus=status))

    assert (snapshot.is_terminal, snapshot.succeeded) == (is_terminal, succeeded)


@pytest.mark.parametrize("describe", [training, processing], ids=["training", "processing"])
def test_a_snapshot_survives_json(describe: Any) -> None:
    snapshot = JobSnapshot.from_describe(describe())

    data = json.loads(json.dumps(snapshot.to_dict()))

    assert JobSnapshot.from_dict(data) == snapshot
    assert data["succeeded"] is snapshot.succeeded


def test_a_heterogeneous_cluster_has_no_top_level_count_and_is_read_all_the_same() -> None:
    groups = [
        {"InstanceGroupName": "a", "InstanceType": "ml.c5.xlarge", "InstanceCount": 1},
        {"InstanceGroupName": "b", "InstanceType": "ml.g5.xlarge", "InstanceCount": 2},
    ]

    snapshot = JobSnapshot.from_describe(training(ResourceConfig={"InstanceGroups": groups}))

    assert snapshot.instance_count == 3
    assert snapshot.instance_type == "ml.c5.xlarge, ml.g5.xlarge"
    assert snapshot.instance_groups == (
        {"instance_group_name": "a", "instance_type": "ml.c5.xlarge", "instance_count": 1},
        {"instance_group_name": "b", "instance_type": "ml.g5.xlarge", "instance_count": 2},
    )
    assert isinstance(snapshot.to_dict()["instance_groups"], list), "XCom wraps a tuple"
    assert JobSnapshot.from_dict(json.loads(json.dumps(snapshot.to_dict()))) == snapshot


def test_the_instance_type_the_service_chose_is_the_one_that_counts() -> None:
    chosen = {"SelectedInstanceType": "ml.p4d.24xlarge", "SelectedInstanceCount": 2}

    snapshot = JobSnapshot.from_describe(training(ResourceConfig=chosen))

    assert (snapshot.instance_type, snapshot.instance_count) == ("ml.p4d.24xlarge", 2)


def test_a_job_that_never_started_is_read() -> None:
    answer = {
        "TrainingJobName": "job-1",
        "TrainingJobArn": "arn",
        "TrainingJobStatus": "Stopped",
        "SecondaryStatus": "MaxWaitTimeExceeded",
        "CreationTime": at(0),
    }

    snapshot = JobSnapshot.from_describe(answer)

    assert snapshot.started_at is None
    assert snapshot.wall_seconds is None
    assert snapshot.training_seconds is None
    assert snapshot.billable_seconds == 0


@pytest.mark.parametrize(
    ("description", "billable_seconds"),
    [
        (training(TrainingStartTime=None, BillableTimeInSeconds=None), 0),
        (training(BillableTimeInSeconds=None), None),
        (
            training(
                TrainingJobStatus="InProgress", TrainingStartTime=None, BillableTimeInSeconds=None
            ),
            None,
        ),
        (processing(ProcessingStartTime=None), 0),
        (processing(ProcessingJobStatus="InProgress", ProcessingStartTime=None), None),
    ],
    ids=["never started", "started", "starting", "processing never started", "processing starting"],
)
def test_only_an_ended_job_that_never_started_is_known_to_be_unbilled(
    description: dict[str, Any], billable_seconds: int | None
) -> None:
    assert JobSnapshot.from_describe(description).billable_seconds == billable_seconds


def test_an_answer_of_something_else_is_our_bug() -> None:
    with pytest.raises(ContractError, match="the Describe response is not that of a job"):
        JobSnapshot.from_describe({"ModelPackageArn": "x"})


def spans(*each: tuple[str, float, float | None], **changes: Any) -> JobSnapshot:
    """Return a job with these transitions: status, begin and end."""
    transitions = [
        {"Status": s, "StartTime": at(a), **({} if b is None else {"EndTime": at(b)})}
        for s, a, b in each
    ]
    return JobSnapshot.from_describe(training(SecondaryStatusTransitions=transitions, **changes))


RUNNING = {"TrainingJobStatus": "InProgress", "TrainingEndTime": None}


@pytest.mark.parametrize(
    ("transitions", "changes", "expected"),
    [
        ([("Starting", 0, None)], RUNNING, (0, None)),
        ([("Pending", 0, 5), ("Starting", 5, None)], RUNNING, (0, None)),
        ([("Starting", 0, 9), ("Training", 9, None)], RUNNING, None),
        (
            [("Training", 0, 9), ("Interrupted", 9, 12), ("Starting", 12, None)],
            RUNNING,
            (9, None),
        ),
        (
            [("Starting", 0, 40), ("Stopping", 40, 41), ("Stopped", 41, 41)],
            {"TrainingJobStatus": "Stopped"},
            (0, 40),
        ),
        ([("Starting", 0, None)], {"TrainingJobStatus": "Failed"}, (0, 95)),
        (
            [("Starting", 0, 10), ("MaxWaitTimeExceeded", 10, 10)],
            {"TrainingJobStatus": "Stopped"},
            (0, 10),
        ),
        ([], RUNNING, None),
    ],
    ids=[
        "starting",
        "pending first",
        "got instances",
        "interrupted",
        "stopped while waiting",
        "ended without saying when",
        "max wait",
        "no transitions",
    ],
)
def test_the_last_wait_is_that_for_instances_which_did_not_come(
    transitions: Any, changes: Any, expected: tuple[float, float | None] | None
) -> None:
    wait = spans(*transitions, **changes).last_wait
    told = None if wait is None else tuple(None if w is None else w - BEGIN for w in wait)

    assert told == expected


@pytest.mark.parametrize(("limit_s", "reached"), [(1800, True), (7200, False), (None, False)])
def test_a_wait_as_long_as_the_described_limit_reached_it(
    limit_s: int | None, *, reached: bool
) -> None:
    limit = {} if limit_s is None else {"MaxPendingTimeInSeconds": limit_s}
    changes = {"TrainingJobStatus": "Stopped", "StoppingCondition": limit}

    job = spans(("Pending", 0, 1800), ("Stopped", 1800, 1800), **changes)

    assert job.reached_max_pending is reached
    assert not spans(("Pending", 0, None), **RUNNING, StoppingCondition=limit).reached_max_pending


def test_all_waits_are_added_up() -> None:
    assert JobSnapshot.from_describe(training()).waiting_seconds == 20
    assert spans(("Starting", 0, None), **RUNNING).waiting_seconds == 95
    assert JobSnapshot.from_describe(processing()).waiting_seconds is None
