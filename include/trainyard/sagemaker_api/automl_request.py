"""CreateAutoMLJobV2 request of an AutoMLJobSpec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.sagemaker_api.request_check import validate_request
from trainyard.sagemaker_api.request_parts import (
    present,
    role_arn,
    tag_list,
    vpc_config,
    with_overrides,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.specs.automl_job import AutoMLJobSpec


def render_automl_job(
    spec: AutoMLJobSpec,
    *,
    name: str,
    region: str,
    max_runtime_s: int | None = None,
    tags: Mapping[str, str] | None = None,
    account: str | None = None,
) -> dict[str, Any]:
    """Return the CreateAutoMLJobV2 request, already checked against botocore's description of the API.

    Raises a SpecError if the account of a bare role name is missing, or if the request violates that description; the
    error then lists all violations.

    Args:
        spec: the job.
        name: name of the job, at most 32 characters.
        region: region of the job.
        max_runtime_s: time limit of the whole job, if a budget makes it shorter than the spec's.
        tags: tags in addition to the spec's.
        account: account id that completes a bare role name to an ARN.
    """
    channels = {"training": spec.train, "validation": spec.validation}
    members = {
        "AutoMLJobName": name,
        "AutoMLJobInputDataConfig": [
            _channel(spec, kind, uri) for kind, uri in channels.items() if uri
        ],
        "OutputDataConfig": present(
            {"S3OutputPath": spec.output_path, "KmsKeyId": spec.output_kms_key}
        ),
        "AutoMLProblemTypeConfig": {"TabularJobConfig": _tabular(spec, max_runtime_s)},
        "RoleArn": role_arn(spec.role, account, region=region),
        "AutoMLJobObjective": {"MetricName": spec.objective} if spec.objective else None,
        "DataSplitConfig": present({"ValidationFraction": spec.validation_fraction}),
        "SecurityConfig": _security(spec),
        "Tags": tag_list(spec.tags, tags),
    }
    request = with_overrides(present(members), spec.raw_request_overrides)
    validate_request("CreateAutoMLJobV2", request)
    return request


def _channel(spec: AutoMLJobSpec, kind: str, uri: str) -> dict[str, Any]:
    return {
        "ChannelType": kind,
        "ContentType": spec.content_type,
        "CompressionType": spec.compression,
        "DataSource": {"S3DataSource": {"S3DataType": spec.s3_data_type, "S3Uri": uri}},
    }


def _tabular(spec: AutoMLJobSpec, max_runtime_s: int | None) -> dict[str, Any]:
    criteria = {
        "MaxCandidates": spec.max_candidates,
        "MaxRuntimePerTrainingJobInSeconds": _shorter(
            spec.max_runtime_per_candidate_s, max_runtime_s
        ),
        "MaxAutoMLJobRuntimeInSeconds": _shorter(spec.max_runtime_s, max_runtime_s),
    }
    if spec.max_runtime_per_candidate_s is None:
        criteria["MaxRuntimePerTrainingJobInSeconds"] = None
    algorithms = [{"AutoMLAlgorithms": list(spec.algorithms)}] if spec.algorithms else None
    return present(
        {
            "TargetAttributeName": spec.target,
            "ProblemType": None if spec.problem_type is None else str(spec.problem_type),
            "Mode": str(spec.mode),
            "CompletionCriteria": present(criteria),
            "CandidateGenerationConfig": present({"AlgorithmsConfig": algorithms}),
            "SampleWeightAttributeName": spec.sample_weight,
            "FeatureSpecificationS3Uri": spec.feature_specification,
        }
    )


def _shorter(first: int | None, second: int | None) -> int | None:
    return min((each for each in (first, second) if each is not None), default=None)


def _security(spec: AutoMLJobSpec) -> dict[str, Any]:
    return present(
        {
            "VolumeKmsKeyId": spec.volume_kms_key,
            "EnableInterContainerTrafficEncryption": spec.encrypt_inter_container_traffic or None,
            "VpcConfig": vpc_config(spec.subnets, spec.security_group_ids),
        }
    )
