"""What the service's model forbids is refused before anything is sent, all at once."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.sagemaker_api.request_check import validate_request

GOOD: dict[str, Any] = {
    "TrainingJobName": "job-1",
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "AlgorithmSpecification": {"TrainingImage": "image:1", "TrainingInputMode": "File"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/output"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
}


def refusal(**changes: Any) -> str:
    with pytest.raises(SpecError) as caught:
        validate_request("CreateTrainingJob", {**GOOD, **changes})
    return str(caught.value)


def test_a_good_request_passes() -> None:
    validate_request("CreateTrainingJob", GOOD)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"TrainingJobName": "job_1"},
            "TrainingJobName: does not match SageMaker's pattern; got 'job_1'",
        ),
        ({"TrainingJobName": "j" * 64}, "TrainingJobName: is too long; got 64 characters"),
        ({"TrainingJobName": ""}, "TrainingJobName: is too short"),
        ({"TrainingJobName": 5}, "TrainingJobName: has the wrong type; got 5 (int)"),
        ({"RoleArn": "arn:aws:iam::1:role/x"}, "RoleArn: does not match"),
        ({"Tag": []}, "Tag: is an unknown key; did you mean 'Tags'?"),
        (
            {"ResourceConfig": {"InstanceType": "ml.m5.lrge"}},
            (
                "ResourceConfig.InstanceType: is not a value that SageMaker accepts; got 'ml.m5.lrge'; "
                "allowed: 225 values; nearest: ml.m5.large"
            ),
        ),
        (
            {"ResourceConfig": {"InstanceCount": True}},
            "ResourceConfig.InstanceCount: has the wrong type; got True (bool)",
        ),
        (
            {"ResourceConfig": {"KeepAlivePeriodInSeconds": 21601}},
            "KeepAlivePeriodInSeconds: is too large; got 21601; allowed: 0 to 21600",
        ),
        (
            {"StoppingCondition": {"MaxRuntimeInSeconds": 0}},
            "StoppingCondition.MaxRuntimeInSeconds: is too small; got 0; allowed: at least 1",
        ),
        (
            {"AlgorithmSpecification": {"TrainingInputMode": "Stream"}},
            "got 'Stream'; allowed: Pipe, File, FastFile",
        ),
        (
            {"AlgorithmSpecification": {"TrainingImage": "x"}},
            "AlgorithmSpecification.TrainingInputMode: is required",
        ),
        (
            {"HyperParameters": {f"h{i}": "1" for i in range(101)}},
            "HyperParameters: has too many entries; got 101 entries; allowed: 0 to 100 entries",
        ),
        ({"HyperParameters": {"a": 1}}, "HyperParameters.a: has the wrong type; got 1 (int)"),
        (
            {"HyperParameters": {"a": "x" * 2501}},
            "HyperParameters.a: is too long; got 2501 characters",
        ),
        ({"InputDataConfig": []}, "InputDataConfig: has too few items; got 0 items"),
        (
            {"InputDataConfig": [{"ChannelName": "a b", "DataSource": {}}]},
            "InputDataConfig[0].ChannelName: does not match",
        ),
        ({"Tags": [{"Key": "a<b>", "Value": "v"}]}, "Tags[0].Key: does not match"),
        ({"Environment": {"1A": "x"}}, "Environment.1A (name): does not match"),
    ],
    ids=lambda v: v[:45] if isinstance(v, str) else None,
)
def test_a_fault_is_found_with_its_path(changes: dict[str, Any], says: str) -> None:
    assert says in refusal(**changes)


def test_all_faults_are_in_one_error() -> None:
    message = refusal(TrainingJobName="_", RoleArn="x", Tags=[{"Key": ""}], Nothing=1)

    assert message.startswith("CreateTrainingJob request: 6 problem(s)")


def test_a_secret_in_the_environment_is_never_repeated() -> None:
    message = refusal(Environment={"TOKEN": "hunter2" * 100, "OTHER": 17})

    assert "hunter2" not in message
    assert "17" not in message


@pytest.mark.parametrize("key", ["Größe", "Cost Center", "a/b:c=d+e-f@g", "日本"])
def test_letters_of_all_languages_are_taken_where_the_service_takes_them(key: str) -> None:
    validate_request("CreateTrainingJob", {**GOOD, "Tags": [{"Key": key, "Value": ""}]})


def test_a_pattern_python_cannot_read_is_left_to_the_service() -> None:
    definition = {
        "AthenaDatasetDefinition": {
            "Catalog": "c",
            "Database": "d",
            "QueryString": "select 1",
            "OutputS3Uri": "s3://b/x",
            "OutputFormat": "PARQUET",
        }
    }
    request = {
        "ProcessingJobName": "job-1",
        "RoleArn": GOOD["RoleArn"],
        "AppSpecification": {"ImageUri": "image"},
        "ProcessingResources": {"ClusterConfig": {"VolumeSizeInGB": 1}},
        "ProcessingInputs": [{"InputName": "a", "DatasetDefinition": definition}],
    }

    validate_request("CreateProcessingJob", request)
