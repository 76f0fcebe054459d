from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine

AWS_IMAGES = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training"


def refusal(endpoint: Endpoint, operation: str, **members: Any) -> tuple[str, str]:
    """Return code and message of the error that the call ends in."""
    client = endpoint.client("sagemaker", validates=False)
    with pytest.raises(ClientError) as caught:
        getattr(client, operation)(**members)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def algorithm(endpoint: Endpoint, **members: Any) -> dict[str, Any]:
    base = {"TrainingImage": endpoint.image, "TrainingInputMode": "File"}
    return {k: v for k, v in {**base, **members}.items() if v is not None}


def channel(endpoint: Endpoint, name: str = "train", **s3: Any) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": endpoint.uri("data"), **s3}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


def resources(**members: Any) -> dict[str, Any]:
    base = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
    return {k: v for k, v in {**base, **members}.items() if v is not None}


# Case: members of the request, the place that is named, the constraint that is named.
MODEL_CONSTRAINTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "name with an underscore": (
        {"TrainingJobName": "bad_name"},
        "trainingJobName",
        "Member must satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}",
    ),
    "name of 64 characters": (
        {"TrainingJobName": "a" * 64},
        "trainingJobName",
        "Member must have length less than or equal to 63",
    ),
    "no role": ({"RoleArn": None}, "roleArn", "Member must not be null"),
    "no output": ({"OutputDataConfig": None}, "outputDataConfig", "Member must not be null"),
    "role that is no ARN": (
        {"RoleArn": "TrainyardExecutionRole/x"},
        "roleArn",
        "Member must satisfy regular expression pattern: arn:aws",
    ),
    "instance type that is not": (
        {"ResourceConfig": resources(InstanceType="ml.huge")},
        "resourceConfig.instanceType",
        "Member must satisfy enum value set: [",
    ),
    "negative instance count": (
        {"ResourceConfig": resources(InstanceCount=-1)},
        "resourceConfig.instanceCount",
        "Member must have value greater than or equal to 0",
    ),
    "no runtime at all": (
        {"StoppingCondition": {"MaxRuntimeInSeconds": 0}},
        "stoppingCondition.maxRuntimeInSeconds",
        "Member must have value greater than or equal to 1",
    ),
    "hyperparameter of 2501 characters": (
        {"HyperParameters": {"a": "b" * 2501}},
        "hyperParameters",
        "Map value must satisfy constraint: [Member must have length less than or equal to 2500, ",
    ),
    "101 hyperparameters": (
        {"HyperParameters": {f"k{i}": "v" for i in range(101)}},
        "hyperParameters",
        "Member must have length less than or equal to 100",
    ),
    "51 tags": (
        {"Tags": [{"Key": f"k{i}", "Value": "v"} for i in range(51)]},
        "tags",
        "Member must have length less than or equal to 50",
    ),
    "tag without a value": (
        {"Tags": [{"Key": "k"}]},
        "tags.1.member.value",
        "Member must not be null",
    ),
    "output that is not an S3 URI": (
        {"OutputDataConfig": {"S3OutputPath": "output/model"}},
        "outputDataConfig.s3OutputPath",
        "Member must satisfy regular expression pattern: (https|s3)://",
    ),
}


@pytest.mark.parametrize("case", MODEL_CONSTRAINTS, ids=lambda case: case.replace(" ", "-"))
def test_create_refuses_what_the_model_forbids(endpoint: Endpoint, case: str) -> None:
    members, path, constraint = MODEL_CONSTRAINTS[case]
    request = endpoint.training_request(**members)
    code, message = refusal(endpoint, "create_training_job", **request)
    assert code == "ValidationException"
    assert "validation error" in message
    assert f"at '{path}' failed to satisfy constraint: {constraint}" in message


def test_create_names_all_broken_constraints_at_once(endpoint: Endpoint) -> None:
    request = endpoint.training_request(
        TrainingJobName="bad_name",
        RoleArn=None,
        ResourceConfig=resources(InstanceType="ml.huge", InstanceCount=-1),
    )
    code, message = refusal(endpoint, "create_training_job", **request)
    assert code == "ValidationException"
    assert message.startswith("4 validation errors detected: ")
    for path in ("roleArn", "trainingJobName", "instanceType", "instanceCount"):
        assert path in message


WRONG_TYPES = {
    "string for a number": ({"InstanceCount": "two"}, "STRING_VALUE"),
    "number for a string": ({"InstanceType": 5}, "NUMBER_VALUE"),
    "list for a string": ({"VolumeKmsKeyId": []}, "START_ARRAY"),
}


@pytest.mark.parametrize("case", WRONG_TYPES, ids=lambda case: case.replace(" ", "-"))
def test_create_refuses_values_of_the_wrong_json_type(endpoint: Endpoint, case: str) -> None:
    members, token = WRONG_TYPES[case]
    request = endpoint.training_request(ResourceConfig=resources(**members))
    code, message = refusal(endpoint, "create_training_job", **request)
    assert code == "SerializationException"
    assert token in message


def contradictions(endpoint: Endpoint) -> dict[str, tuple[dict[str, Any], str]]:
    group = {"InstanceGroupName": "a", "InstanceType": "ml.m5.large", "InstanceCount": 1}
    spot = {"EnableManagedSpotTraining": True}
    return {
        "groups beside instance type": (
            {"ResourceConfig": resources(InstanceGroups=[group])},
            "InstanceGroups",
        ),
        "neither groups nor instance type": (
            {"ResourceConfig": {"VolumeSizeInGB": 1}},
            "InstanceType",
        ),
        "spot without max wait": (spot, "Invalid MaxWaitTimeInSeconds"),
        "max wait below max runtime": (
            {
                **spot,
                "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 59},
            },
            "Invalid MaxWaitTimeInSeconds",
        ),
        "max wait without spot": (
            {"StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}},
            "MaxWaitTimeInSeconds",
        ),
        "warm pool with spot": (
            {
                **spot,
                "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60},
                "ResourceConfig": resources(KeepAlivePeriodInSeconds=60),
            },
            "KeepAlivePeriodInSeconds",
        ),
        "image and algorithm name": (
            {"AlgorithmSpecification": algorithm(endpoint, AlgorithmName="some-algorithm")},
            "AlgorithmName",
        ),
        "neither image nor algorithm name": (
            {"AlgorithmSpecification": algorithm(endpoint, TrainingImage=None)},
            "TrainingImage",
        ),
        "two channels of one name": (
            {"InputDataConfig": [channel(endpoint), channel(endpoint)]},
            "train",
        ),
        "channel without a source": (
            {"InputDataConfig": [{"ChannelName": "train", "DataSource": {}}]},
            "DataSource",
        ),
        "channel of an unknown group": (
            {"InputDataConfig": [channel(endpoint, InstanceGroupNames=["nobody"])]},
            "nobody",
        ),
        "file system without a network": (
            {
                "InputDataConfig": [
                    {
                        "ChannelName": "train",
                        "DataSource": {
                            "FileSystemDataSource": {
                                "FileSystemId": "fs-0123456789abcdef0",
                                "FileSystemAccessMode": "ro",
                                "FileSystemType": "EFS",
                                "DirectoryPath": "/data",
                            }
                        },
                    }
                ]
            },
            "VpcConfig",
        ),
        "role that does not exist": (
            {"RoleArn": endpoint.role_arn + "-nobody"},
            "Could not assume role",
        ),
        "input that does not exist": (
            {"InputDataConfig": [channel(endpoint, S3Uri=endpoint.uri("nothing-here"))]},
            "No S3 objects found under S3 URL",
        ),
        "bucket that does not exist": (
            {
                "InputDataConfig": [
                    channel(endpoint, S3Uri=f"s3://{endpoint.prefix}-no-such-bucket/data")
                ]
            },
            "No S3 objects found under S3 URL",
        ),
        "image that does not exist": (
            {
                "AlgorithmSpecification": algorithm(
                    endpoint,
                    TrainingImage="123456789012.dkr.ecr.us-east-1.amazonaws.com/no-such-image:1",
                )
            },
            "no-such-image",
        ),
        "volume key on local storage": (
            {
                "ResourceConfig": {
                    "InstanceType": "ml.g5.xlarge",
                    "InstanceCount": 1,
                    "VolumeSizeInGB": 1,
                    "VolumeKmsKeyId": "alias/ours",
                }
            },
            "a VolumeKmsKeyId when using an instance type with local storage (ml.g5.xlarge)",
        ),
        "volume key on local storage of one group": (
            {
                "ResourceConfig": {
                    "InstanceGroups": [
                        {
                            "InstanceGroupName": name,
                            "InstanceType": instance_type,
                            "InstanceCount": 1,
                        }
                        for name, instance_type in (("a", "ml.m5.large"), ("b", "ml.p4d.24xlarge"))
                    ],
                    "VolumeSizeInGB": 1,
                    "VolumeKmsKeyId": "alias/ours",
                }
            },
            "a VolumeKmsKeyId when using an instance type with local storage (ml.p4d.24xlarge)",
        ),
        "volume above local storage": (
            {
                "ResourceConfig": {
                    "InstanceType": "ml.g4dn.xlarge",
                    "InstanceCount": 1,
                    "VolumeSizeInGB": 126,
                }
            },
            "than the total size of the local instance storage (ml.g4dn.xlarge: 125 GB)",
        ),
        "volume above local storage of one group": (
            {
                "ResourceConfig": {
                    "InstanceGroups": [
                        {
                            "InstanceGroupName": name,
                            "InstanceType": instance_type,
                            "InstanceCount": 1,
                        }
                        for name, instance_type in (("a", "ml.m5.large"), ("b", "ml.p4d.24xlarge"))
                    ],
                    "VolumeSizeInGB": 8001,
                }
            },
            "than the total size of the local instance storage (ml.p4d.24xlarge: 8000 GB)",
        ),
        "tag that AWS never published": (
            {
                "AlgorithmSpecification": algorithm(
                    endpoint, TrainingImage=f"{AWS_IMAGES}:2.8.0-tpu"
                )
            },
            "no tag '2.8.0-tpu'",
        ),
        "registry of another region": (
            {
                "AlgorithmSpecification": algorithm(
                    endpoint,
                    TrainingImage=AWS_IMAGES.replace("763104351884", "626614931356")
                    + ":2.8.0-cpu-py312",
                )
            },
            "is 763104351884, not 626614931356",
        ),
        "image without a registry": (
            {
                "AlgorithmSpecification": algorithm(
                    endpoint, TrainingImage="pytorch-training:2.8.0-cpu-py312"
                )
            },
            "using non-ECR images without Vpc repository access mode is not supported",
        ),
        "image that is no image": (
            {
                "AlgorithmSpecification": algorithm(
                    endpoint, TrainingImage="docker.io/evil/img:latest;rm"
                )
            },
            "it is not an image URI",
        ),
    }


CONTRADICTIONS = (
    "groups beside instance type",
    "neither groups nor instance type",
    "spot without max wait",
    "max wait below max runtime",
    "max wait without spot",
    "warm pool with spot",
    "image and algorithm name",
    "neither image nor algorithm name",
    "two channels of one name",
    "channel without a source",
    "channel of an unknown group",
    "file system without a network",
    "role that does not exist",
    "input that does not exist",
    "bucket that does not exist",
    "image that does not exist",
    "volume key on local storage",
    "volume key on local storage of one group",
    "volume above local storage",
    "volume above local storage of one group",
    "tag that AWS never published",
    "registry of another region",
    "image without a registry",
    "image that is no image",
)


@pytest.mark.parametrize("case", CONTRADICTIONS, ids=lambda case: case.replace(" ", "-"))
def test_create_refuses_what_contradicts_itself_or_the_world(endpoint: Endpoint, case: str) -> None:
    endpoint.put("data/one.txt")
    members, expected = contradictions(endpoint)[case]
    request = endpoint.training_request(**members)
    code, message = refusal(endpoint, "create_training_job", **request)
    assert code == "ValidationException"
    assert expected in message


def test_a_refused_job_does_not_exist(endpoint: Endpoint) -> None:
    request = endpoint.training_request(RoleArn=endpoint.role_arn + "-nobody")
    refusal(endpoint, "create_training_job", **request)
    name = request["TrainingJobName"]
    code, message = refusal(endpoint, "describe_training_job", TrainingJobName=name)
    assert (code, message) == ("ValidationException", "Requested resource not found.")


UNKNOWN = {
    "describe_training_job": ("TrainingJobName", "Requested resource not found."),
    "stop_training_job": ("TrainingJobName", "Requested resource not found."),
    "delete_training_job": ("TrainingJobName", "Requested resource not found."),
    "update_training_job": ("TrainingJobName", "Requested resource not found."),
    "describe_processing_job": ("ProcessingJobName", "Could not find"),
    "stop_processing_job": ("ProcessingJobName", "Could not find"),
    "delete_processing_job": ("ProcessingJobName", "Could not find"),
}


@pytest.mark.parametrize("operation", UNKNOWN)
def test_unknown_name_is_a_validation_exception(endpoint: Endpoint, operation: str) -> None:
    member, expected = UNKNOWN[operation]
    code, message = refusal(endpoint, operation, **{member: endpoint.name("nobody")})
    assert code == "ValidationException"
    assert expected in message


def test_name_can_be_used_once(endpoint: Endpoint) -> None:
    request = endpoint.training_request()
    endpoint.run(request)
    code, message = refusal(endpoint, "create_training_job", **request)
    assert code == "ResourceInUse"
    assert f"training-job/{request['TrainingJobName']}" in message
