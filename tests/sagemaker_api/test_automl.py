"""The AutoML request, and what is read from the service's answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from trainyard.cost.job_cost import job_cost
from trainyard.errors import SpecError
from trainyard.sagemaker_api.automl_request import render_automl_job
from trainyard.sagemaker_api.automl_snapshot import (
    AutoMLCandidate,
    AutoMLFacts,
    leaderboard,
    ranked,
    with_bill,
)
from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard.specs.automl_job import AutoMLJobSpec, AutoMLMode, ProblemType

ROLE = "arn:aws:iam::123456789012:role/Role"
PLACES = {"role": ROLE, "train": "s3://b/t/", "target": "y", "output_path": "s3://b/o"}
MOMENT = datetime(2026, 11, 1, tzinfo=UTC)
CANDIDATE: dict[str, Any] = {
    "CandidateName": "a-001",
    "CandidateStatus": "Completed",
    "ObjectiveStatus": "Succeeded",
    "CandidateSteps": [
        {
            "CandidateStepType": "AWS::SageMaker::TrainingJob",
            "CandidateStepArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/a-001",
            "CandidateStepName": "a-001",
        }
    ],
    "FinalAutoMLJobObjectiveMetric": {"Type": "Minimize", "MetricName": "MSE", "Value": 2.0},
    "InferenceContainers": [
        {"Image": "features", "ModelDataUrl": "s3://b/features.tar.gz"},
        {"Image": "model", "ModelDataUrl": "s3://b/model.tar.gz", "Environment": {"A": "1"}},
    ],
    "CandidateProperties": {
        "CandidateMetrics": [
            {"MetricName": "MSE", "StandardMetricName": "MSE", "Value": 2.0, "Set": "Validation"},
            {"StandardMetricName": "InferenceLatency", "Value": 0.1, "Set": "Validation"},
        ],
        "CandidateArtifactLocations": {"Explainability": "s3://b/e"},
    },
    "CreationTime": MOMENT,
    "LastModifiedTime": MOMENT,
}


def render(**members: Any) -> dict[str, Any]:
    return render_automl_job(
        AutoMLJobSpec(**{**PLACES, **members}), name="a-job", region="us-east-1"
    )


def test_request_says_no_more_than_was_asked() -> None:
    assert render() == {
        "AutoMLJobName": "a-job",
        "AutoMLJobInputDataConfig": [
            {
                "ChannelType": "training",
                "ContentType": "text/csv;header=present",
                "CompressionType": "None",
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/t/"}},
            }
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://b/o"},
        "AutoMLProblemTypeConfig": {
            "TabularJobConfig": {"TargetAttributeName": "y", "Mode": "AUTO"}
        },
        "RoleArn": ROLE,
    }


def test_request_carries_every_wish() -> None:
    request = render(
        validation="s3://b/v/",
        problem_type=ProblemType.REGRESSION,
        objective="RMSE",
        mode=AutoMLMode.ENSEMBLING,
        algorithms=("xgboost",),
        max_candidates=4,
        max_runtime_s=600,
        max_runtime_per_candidate_s=60,
        sample_weight="w",
        feature_specification="s3://b/f.json",
        output_kms_key="key",
        subnets=("subnet-1",),
        security_group_ids=("sg-1",),
        tags={"team": "t"},
    )
    kinds = [each["ChannelType"] for each in request["AutoMLJobInputDataConfig"]]
    assert kinds == ["training", "validation"]
    assert request["AutoMLProblemTypeConfig"]["TabularJobConfig"] == {
        "TargetAttributeName": "y",
        "ProblemType": "Regression",
        "Mode": "ENSEMBLING",
        "CompletionCriteria": {
            "MaxCandidates": 4,
            "MaxRuntimePerTrainingJobInSeconds": 60,
            "MaxAutoMLJobRuntimeInSeconds": 600,
        },
        "CandidateGenerationConfig": {"AlgorithmsConfig": [{"AutoMLAlgorithms": ["xgboost"]}]},
        "SampleWeightAttributeName": "w",
        "FeatureSpecificationS3Uri": "s3://b/f.json",
    }
    assert request["AutoMLJobObjective"] == {"MetricName": "RMSE"}
    assert request["OutputDataConfig"]["KmsKeyId"] == "key"
    assert request["SecurityConfig"]["VpcConfig"]["Subnets"] == ["subnet-1"]
    assert request["Tags"] == [{"Key": "team", "Value": "t"}]


def test_budgets_time_limit_shortens_the_job_and_its_candidates() -> None:
    spec = AutoMLJobSpec(**PLACES, max_runtime_s=600, max_runtime_per_candidate_s=300)
    request = render_automl_job(spec, name="a", region="us-east-1", max_runtime_s=100)
    criteria = request["AutoMLProblemTypeConfig"]["TabularJobConfig"]["CompletionCriteria"]
    assert criteria["MaxAutoMLJobRuntimeInSeconds"] == 100
    assert criteria["MaxRuntimePerTrainingJobInSeconds"] == 100


def test_name_that_the_service_refuses_is_refused_before() -> None:
    with pytest.raises(SpecError, match="AutoMLJobName"):
        render_automl_job(AutoMLJobSpec(**PLACES), name="a" * 33, region="us-east-1")


def test_candidate_is_read_from_the_wire() -> None:
    found = AutoMLCandidate.from_wire(CANDIDATE)
    assert (found.name, found.value, found.model_artifact) == ("a-001", 2.0, "s3://b/model.tar.gz")
    assert found.metrics == {"Validation": {"MSE": 2.0, "InferenceLatency": 0.1}}
    assert [each["type"] for each in found.steps] == ["TrainingJob"]
    assert found.explainability_uri == "s3://b/e"
    assert found.to_dict()["image_uri"] == "model"


def test_running_candidate_has_no_value_and_no_model() -> None:
    steps = {key: CANDIDATE[key] for key in ("CandidateName", "CandidateSteps")}
    found = AutoMLCandidate.from_wire({**steps, "CandidateStatus": "InProgress"})
    assert (found.value, found.model_artifact, found.is_terminal) == (None, None, False)


def test_facts_name_objective_direction_and_best() -> None:
    facts = AutoMLFacts.from_describe(
        {
            "AutoMLJobName": "a",
            "BestCandidate": CANDIDATE,
            "ResolvedAttributes": {
                "AutoMLProblemTypeResolvedAttributes": {
                    "TabularResolvedAttributes": {"ProblemType": "Regression"}
                }
            },
            "PartialFailureReasons": [{"PartialFailureMessage": "no explanation"}],
        }
    )
    assert (facts.metric_name, facts.maximize, facts.problem_type) == ("MSE", False, "Regression")
    assert facts.partial_failures == ("no explanation",)
    assert AutoMLFacts.from_describe({"AutoMLJobName": "a"}).best is None


def candidate(name: str, value: float | None, status: str = "Completed") -> AutoMLCandidate:
    return AutoMLCandidate(name=name, status=status, value=value, created_at=0.0, ended_at=7.4)


def test_leaderboard_ranks_by_the_objectives_direction() -> None:
    found = [candidate("b", None, "Failed"), candidate("c", 0.5), candidate("a", 0.9)]
    assert [each.name for each in ranked(found, maximize=True)] == ["a", "c", "b"]
    assert [each.name for each in ranked(found, maximize=False)] == ["c", "a", "b"]
    head, best, *_ = leaderboard(found, metric="F1", maximize=True).splitlines()
    assert head.split() == ["candidate", "status", "F1", "seconds"]
    assert best.split() == ["*", "a", "Completed", "0.9", "7"]


def test_snapshot_of_an_automl_job() -> None:
    snapshot = JobSnapshot.from_describe(
        {
            "AutoMLJobName": "a",
            "AutoMLJobArn": "arn",
            "AutoMLJobStatus": "Completed",
            "AutoMLJobSecondaryStatus": "MaxAutoMLJobRuntimeReached",
            "OutputDataConfig": {"S3OutputPath": "s3://b/o"},
            "BestCandidate": CANDIDATE,
            "CreationTime": MOMENT,
            "EndTime": MOMENT,
        }
    )
    assert (snapshot.kind, snapshot.succeeded, snapshot.output_path) == ("automl", True, "s3://b/o")
    assert snapshot.final_metrics == {"MSE": 2.0}
    assert JobSnapshot.from_dict(snapshot.to_dict()) == snapshot


def child(instance_type: str, seconds: int) -> JobSnapshot:
    return JobSnapshot(
        kind="training",
        name="child",
        arn="",
        status="Completed",
        instance_type=instance_type,
        billable_seconds=seconds,
    )


@pytest.mark.parametrize(
    ("jobs", "seconds", "usd"),
    [
        ([child("ml.m5.large", 3600), child("ml.m5.large", 1800)], 5400, 1.5 * 0.115),
        ([child("ml.m5.large", 3600), child("ml.c5.xlarge", 1800)], 5400, 0.115 + 0.5 * 0.204),
        ([child("ml.m5.large", 3600), child("ml.unknown", 1800)], 5400, None),
        ([], 0, 0.0),
    ],
    ids=["one type", "two types", "no price", "no job"],
)
def test_an_automl_job_costs_what_its_jobs_cost(
    jobs: list[JobSnapshot], seconds: int, usd: float | None
) -> None:
    automl = JobSnapshot(kind="automl", name="a", arn="", status="Completed")

    cost = job_cost(with_bill(automl, jobs).to_dict())

    assert cost.billable_seconds == seconds
    assert cost.cost_usd == (None if usd is None else pytest.approx(usd))
