"""CreateProcessingJob request of a ProcessingJobSpec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.sagemaker_api.request_check import validate_request
from trainyard.sagemaker_api.request_parts import (
    no_image,
    present,
    role_arn,
    tag_list,
    vpc_config,
    with_overrides,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.specs.processing_job import ProcessingInput, ProcessingJobSpec, ProcessingOutput

CODE_INPUT = "code"
CODE_FOLDER = "/opt/ml/processing/input/code"
# Unpacks the uploaded folder and runs the arguments in it. The folder's root is read from the
# variable that AWS's own in-container toolkit uses, so that the command also works where /opt/ml
# cannot be written.
RUN_CODE = (
    'set -e; d=$(mktemp -d); tar -xzf "${SAGEMAKER_BASE_DIR:-/opt/ml}'
    '/processing/input/code/sourcedir.tar.gz" -C "$d"; cd "$d"; '
    "if [ -f requirements.txt ]; then python3 -m pip install -r requirements.txt; fi; "
    'exec "$@"'
)


def render_processing_job(
    spec: ProcessingJobSpec,
    *,
    name: str,
    region: str,
    code_s3_uri: str | None = None,
    image_uri: str | None = None,
    tags: Mapping[str, str] | None = None,
    account: str | None = None,
) -> dict[str, Any]:
    """Return the CreateProcessingJob request, already checked against botocore's description of the API.

    With an entry_point, the code becomes the input `code` at /opt/ml/processing/input/code, and the
    container unpacks it and runs `command entry_point arguments`.

    Raises a SpecError if the code or the image is missing, or if the role is a bare name and there is no
    account. If the request violates botocore's description, the SpecError lists all violations.

    Args:
        spec: the job.
        name: the job's name.
        region: region of the job.
        code_s3_uri: sourcedir.tar.gz with the entry point; needed if the spec has an entry_point
            and its source_dir is not on S3 already.
        image_uri: the image if the spec names none (see `images.image_uri`).
        tags: tags in addition to the spec's.
        account: account id that completes a bare role name to an ARN.
    """
    inputs = [_input(each) for each in spec.inputs]
    if spec.entry_point:
        inputs.append(_code_input(_code_uri(spec, code_s3_uri)))
    members = {
        "ProcessingJobName": name,
        "ProcessingInputs": inputs,
        "ProcessingOutputConfig": _outputs(spec),
        "ProcessingResources": _resources(spec),
        "StoppingCondition": {"MaxRuntimeInSeconds": spec.max_run},
        "AppSpecification": _application(spec, image_uri),
        "Environment": dict(spec.environment),
        "NetworkConfig": _network(spec),
        "RoleArn": role_arn(spec.role, account, region=region),
        "Tags": tag_list(spec.tags, tags),
        "ExperimentConfig": spec.experiment_config,
    }
    request = with_overrides(present(members), spec.raw_request_overrides)
    validate_request("CreateProcessingJob", request)
    return request


def _resources(spec: ProcessingJobSpec) -> dict[str, Any]:
    cluster = {
        "InstanceCount": spec.instance_count,
        "InstanceType": spec.instance_type,
        "VolumeSizeInGB": spec.volume_size,
        "VolumeKmsKeyId": spec.volume_kms_key,
    }
    return {"ClusterConfig": present(cluster)}


def _application(spec: ProcessingJobSpec, image_uri: str | None) -> dict[str, Any]:
    if spec.entry_point:
        entrypoint = ["/bin/bash", "-c", RUN_CODE, "run-code"]
        arguments = [*spec.command, spec.entry_point, *spec.arguments]
    else:
        entrypoint, arguments = list(spec.entrypoint), list(spec.arguments)
    image = spec.image_uri or image_uri
    if image is None:
        raise no_image()
    return present(
        {
            "ImageUri": image,
            "ContainerEntrypoint": entrypoint,
            "ContainerArguments": arguments,
        }
    )


def _code_uri(spec: ProcessingJobSpec, code_s3_uri: str | None) -> str:
    is_on_s3 = (spec.source_dir or "").startswith("s3://")
    code = code_s3_uri or (spec.source_dir if is_on_s3 else None)
    if code and code.endswith("/sourcedir.tar.gz"):
        return code
    raise SpecError(
        Finding(
            where="code_s3_uri",
            what="is needed to run an entry_point",
            got=repr(code),
            allowed="s3://.../sourcedir.tar.gz",
            next_step="upload source_archive(source_dir) first and pass its S3 URI",
        )
    )


def _code_input(uri: str) -> dict[str, Any]:
    s3_input = {
        "S3Uri": uri,
        "LocalPath": CODE_FOLDER,
        "S3DataType": "S3Prefix",
        "S3InputMode": "File",
        "S3DataDistributionType": "FullyReplicated",
        "S3CompressionType": "None",
    }
    return {"InputName": CODE_INPUT, "S3Input": s3_input}


def _input(each: ProcessingInput) -> dict[str, Any]:
    return {
        "InputName": each.input_name,
        "S3Input": {
            "S3Uri": each.source,
            "LocalPath": each.destination,
            "S3DataType": each.s3_data_type,
            "S3InputMode": each.s3_input_mode,
            "S3DataDistributionType": each.s3_data_distribution_type,
            "S3CompressionType": each.s3_compression_type,
        },
    }


def _output(each: ProcessingOutput) -> dict[str, Any]:
    return {
        "OutputName": each.output_name,
        "S3Output": {
            "S3Uri": each.destination,
            "LocalPath": each.source,
            "S3UploadMode": each.s3_upload_mode,
        },
    }


def _outputs(spec: ProcessingJobSpec) -> dict[str, Any] | None:
    if not spec.outputs and not spec.output_kms_key:
        return None
    outputs = [_output(each) for each in spec.outputs]
    return {"Outputs": outputs, **present({"KmsKeyId": spec.output_kms_key})}


def _network(spec: ProcessingJobSpec) -> dict[str, Any]:
    return present(
        {
            "EnableInterContainerTrafficEncryption": spec.encrypt_inter_container_traffic or None,
            "EnableNetworkIsolation": spec.enable_network_isolation or None,
            "VpcConfig": vpc_config(spec.subnets, spec.security_group_ids),
        }
    )
