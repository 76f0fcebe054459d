"""CreateTrainingJob request of a TrainingJobSpec.

A job with an entry point runs in script mode of AWS's framework toolkits: hyperparameters name the program and the
launcher. Their values are JSON-encoded, as by the SDK's estimator (v2.257.7); the toolkit decodes each with
`json.loads`. The hyperparameters of a strategy are in its own module in `include/trainyard/specs/strategies`.
"""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.sagemaker_api.request_check import validate_request
from trainyard.sagemaker_api.request_parts import (
    KMS_KEY_VARIABLE,
    STATISTICS_VARIABLE,
    no_image,
    place_variables,
    present,
    role_arn,
    tag_list,
    vpc_config,
    with_checkpoint_folder,
    with_overrides,
)
from trainyard.specs.built_in_rules import missing_hyperparameters
from trainyard.specs.channel import Channel, DatasetInput, FileSystemInput, TrainingInput
from trainyard.specs.strategies.strategy import Launcher, Target
from trainyard.specs.training_job_rules import ARGUMENTS, CODE_CHANNEL, unreachable_inputs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trainyard.specs.training_job import TrainingJobSpec

CODE_FOLDER = f"/opt/ml/input/data/{CODE_CHANNEL}"
"""Folder of the code in a container without access to S3 (SDK v2, `CONTAINER_CODE_CHANNEL_SOURCEDIR_PATH`)."""
RELAY = Path(__file__).with_name("sigterm_relay.py")
RUN_ARGUMENTS = "import sys; exec('\\n'.join(sys.argv[2:]))"
LONGEST_ARGUMENT = 256
"""Most characters of a container argument in CreateTrainingJob, which also allows at most 100 arguments."""


def render_training_job(
    spec: TrainingJobSpec,
    *,
    name: str,
    region: str,
    code_s3_uri: str | None = None,
    image_uri: str | None = None,
    tags: Mapping[str, str] | None = None,
    account: str | None = None,
    searched: Collection[str] = (),
    kms_key_id: str | None = None,
) -> dict[str, Any]:
    """Return the CreateTrainingJob request, already checked against botocore's description of the API.

    Args:
        spec: the job.
        name: the job's name.
        region: region of the job.
        code_s3_uri: sourcedir.tar.gz with the entry point; needed if the spec has an entry_point
            and its source_dir is not on S3 already.
        image_uri: the image if the spec names none (see `images.image_uri`).
        tags: tags in addition to the spec's.
        account: account id that completes a bare role name to an ARN.
        searched: hyperparameters that a search sets per trial, in addition to the spec's.
        kms_key_id: key for the objects that Trainyard's scripts upload; None uses the bucket's default.

    Raises:
        SpecError: the code, the image or the account of a bare role name is missing, a built-in algorithm lacks a
            required hyperparameter, a channel on a file system has no network, or the request violates botocore's
            description. The error lists all such faults.
    """
    missing = [*missing_hyperparameters(spec, searched=searched), *unreachable_inputs(spec)]
    if missing:
        raise SpecError(missing, subject="TrainingJobSpec")
    hyperparameters = script_mode_hyperparameters(
        spec, name=name, region=region, code_s3_uri=code_s3_uri
    )
    members = {
        "TrainingJobName": name,
        "HyperParameters": hyperparameters,
        "AlgorithmSpecification": _algorithm(spec, image_uri),
        "RoleArn": role_arn(spec.role, account, region=region),
        "InputDataConfig": [
            _channel(name, channel)
            for name, channel in {**spec.inputs, **_code_channel(spec, code_s3_uri)}.items()
        ],
        "OutputDataConfig": _output(spec),
        "ResourceConfig": _resources(spec, account=account, region=region),
        "StoppingCondition": _stopping(spec),
        "Tags": tag_list(spec.tags, tags),
        "Environment": {**_places(spec, kms_key_id), **spec.environment},
        **_isolation(spec),
        **_watching(spec),
    }
    request = with_checkpoint_folder(with_overrides(present(members), spec.raw_request_overrides))
    validate_request("CreateTrainingJob", request)
    return request


def script_mode_hyperparameters(
    spec: TrainingJobSpec, *, name: str, region: str, code_s3_uri: str | None
) -> dict[str, str]:
    """Return all hyperparameters of the request, those of script mode last.

    With an entry point, every value is JSON-encoded. Without one (built-in algorithms, own containers), only
    values that are not text are JSON-encoded. Text is passed unchanged, because the images of such jobs read
    plain strings.

    Raises:
        SpecError: there is an entry point, but its code has not been uploaded.
    """
    if not spec.entry_point:
        return {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in spec.hyperparameters.items()
        }
    code = code_uri(spec, code_s3_uri=code_s3_uri)
    hyperparameters: dict[str, object] = {
        **_model_folder(spec, name=name),
        **spec.hyperparameters,
        **({ARGUMENTS: [spec.entry_point, *spec.arguments]} if spec.arguments else {}),
        "sagemaker_program": spec.program,
        "sagemaker_submit_directory": f"{CODE_FOLDER}/{code.rpartition('/')[2]}"
        if spec.enable_network_isolation
        else code,
        "sagemaker_container_log_level": spec.container_log_level,
        "sagemaker_job_name": name,
        "sagemaker_region": region,
        **_strategy(spec),
    }
    return {key: json.dumps(value) for key, value in hyperparameters.items()}


def code_uri(spec: TrainingJobSpec, *, code_s3_uri: str | None) -> str:
    """Return the S3 URI of the code of a spec with an entry point.

    Raises:
        SpecError: the code has not been uploaded.
    """
    is_on_s3 = (spec.source_dir or "").startswith("s3://")
    code = code_s3_uri or (spec.source_dir if is_on_s3 else None)
    if code is None:
        raise SpecError(
            Finding(
                where="code_s3_uri",
                what="is needed to run an entry_point",
                next_step="upload source_archive(source_dir) first and pass its S3 URI",
            )
        )
    return code


def _strategy(spec: TrainingJobSpec) -> dict[str, object]:
    if spec.launch is None:
        return {}
    return spec.launch.hyperparameters(
        Target(framework=spec.framework, instance_type=spec.instance_type)
    )


def _model_folder(spec: TrainingJobSpec, *, name: str) -> dict[str, object]:
    """Return the hyperparameter `model_dir` of TensorFlow's toolkit; empty for other frameworks.

    It is the folder for models and checkpoints. A `model_dir` of the user takes precedence.
    """
    if spec.framework != "tensorflow":
        return {}
    is_mpi = spec.launch is not None and spec.launch.strategy.launcher is Launcher.MPIRUN
    place = "/opt/ml/model" if is_mpi else f"{spec.output_path.rstrip('/')}/{name}/model"
    return {"model_dir": place}


def _code_channel(spec: TrainingJobSpec, code_s3_uri: str | None) -> dict[str, Channel]:
    """Return the channel with the code, for a job without network access; otherwise empty.

    The SDK v2 has the same channel. If the other channels name instance groups, this channel names all groups;
    otherwise the service rejects the job.
    """
    if not (spec.entry_point and spec.enable_network_isolation):
        return {}
    names_groups = any(getattr(each, "instance_groups", ()) for each in spec.inputs.values())
    groups = tuple(each.instance_group_name for each in spec.instance_groups)
    code = code_uri(spec, code_s3_uri=code_s3_uri)
    return {
        CODE_CHANNEL: TrainingInput(s3_data=code, instance_groups=groups if names_groups else ())
    }


def _isolation(spec: TrainingJobSpec) -> dict[str, Any]:
    """Return the request's members for network, encryption of traffic between containers, and spot capacity."""
    return {
        "VpcConfig": vpc_config(spec.subnets, spec.security_group_ids),
        "EnableNetworkIsolation": spec.enable_network_isolation or None,
        "EnableInterContainerTrafficEncryption": spec.encrypt_inter_container_traffic or None,
        "EnableManagedSpotTraining": spec.use_spot_instances or None,
    }


def _algorithm(spec: TrainingJobSpec, image_uri: str | None) -> dict[str, Any] | None:
    image = spec.image_uri or (None if spec.algorithm_name else image_uri)
    if spec.serverless_job_config:
        return None
    if not (image or spec.algorithm_name):
        raise no_image()
    return present(
        {
            "TrainingImage": image,
            "AlgorithmName": spec.algorithm_name,
            "TrainingInputMode": spec.input_mode,
            "MetricDefinitions": [
                {"Name": metric.name, "Regex": metric.regex} for metric in spec.metric_definitions
            ],
            "EnableSageMakerMetricsTimeSeries": spec.enable_sagemaker_metrics,
            **_process_1(spec),
            "TrainingImageConfig": spec.training_image_config,
        }
    )


def _process_1(spec: TrainingJobSpec) -> dict[str, Any]:
    """Return the fields of the request with the entry point and the arguments of the container's process 1.

    They replace those of the image. Both lists are empty if the container starts with the entry point and the
    arguments of its image.
    """
    entrypoint, arguments = spec.container_entry_point, spec.container_arguments
    if spec.forward_sigterm and spec.program:
        entrypoint, arguments = forwarding_entrypoint(spec.program)
    return {"ContainerEntrypoint": list(entrypoint), "ContainerArguments": list(arguments)}


def forwarding_entrypoint(program: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ContainerEntrypoint and ContainerArguments that forward SIGTERM to the ranks of `program`.

    The image needs `python3` and the toolkit's `train`, as AWS's framework images have them.

    Args:
        program: path of the script, the hyperparameter `sagemaker_program`.
    """
    return ("python3", "-c", RUN_ARGUMENTS), (program, *_relay_lines())


@cache
def _relay_lines() -> tuple[str, ...]:
    """Return the lines of the code of `sigterm_relay.py`, each as one container argument.

    Docstrings, comments, annotations and the future import are left out: images may have Python 3.6.
    """
    tree = ast.parse(RELAY.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node):
            del node.body[0]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    tree.body = [each for each in tree.body if getattr(each, "module", None) != "__future__"]
    return tuple(line for line in ast.unparse(tree).splitlines() if line)


def _channel(name: str, channel: Channel) -> dict[str, Any]:
    if isinstance(channel, DatasetInput):
        return {
            "ChannelName": name,
            "DataSource": {"DatasetSource": {"DatasetArn": channel.dataset_arn}},
        }
    if isinstance(channel, FileSystemInput):
        source = {
            "FileSystemId": channel.file_system_id,
            "FileSystemAccessMode": channel.file_system_access_mode,
            "FileSystemType": channel.file_system_type,
            "DirectoryPath": channel.directory_path,
        }
        members = {"DataSource": {"FileSystemDataSource": source}}
        return present({"ChannelName": name, **members, "ContentType": channel.content_type})
    return present(
        {
            "ChannelName": name,
            "DataSource": {
                "S3DataSource": present(
                    {
                        "S3DataType": channel.s3_data_type,
                        "S3Uri": channel.s3_data,
                        "S3DataDistributionType": channel.distribution,
                        "AttributeNames": list(channel.attribute_names),
                        "InstanceGroupNames": list(channel.instance_groups),
                        "ModelAccessConfig": channel.model_access_config,
                        "HubAccessConfig": channel.hub_access_config,
                    }
                )
            },
            "ContentType": channel.content_type,
            "CompressionType": channel.compression,
            "RecordWrapperType": channel.record_wrapping,
            "InputMode": channel.input_mode,
            "ShuffleConfig": (
                None if channel.shuffle_seed is None else {"Seed": channel.shuffle_seed}
            ),
        }
    )


def _output(spec: TrainingJobSpec) -> dict[str, Any]:
    return present(
        {
            "KmsKeyId": spec.output_kms_key,
            "S3OutputPath": spec.output_path,
            "CompressionType": "NONE" if spec.disable_output_compression else None,
        }
    )


def _resources(spec: TrainingJobSpec, *, account: str | None, region: str) -> dict[str, Any] | None:
    if spec.serverless_job_config:
        return None
    groups = [
        {
            "InstanceType": group.instance_type,
            "InstanceCount": group.instance_count,
            "InstanceGroupName": group.instance_group_name,
        }
        for group in spec.instance_groups
    ]
    preferences = [
        present(
            {
                "InstanceType": choice.instance_type,
                "InstanceCount": choice.instance_count,
                "TrainingPlanArns": list(choice.training_plan_arns),
            }
        )
        for choice in spec.instance_preferences
    ]
    return present(
        {
            "InstanceType": spec.instance_type,
            "InstanceCount": None
            if groups
            else spec.instance_count or (1 if spec.instance_type else None),
            "VolumeSizeInGB": spec.volume_size,
            "VolumeKmsKeyId": spec.volume_kms_key,
            "KeepAlivePeriodInSeconds": spec.keep_alive_period_in_seconds,
            "InstanceGroups": groups,
            "TrainingPlanArn": _plan_arn(spec, account=account, region=region),
            "InstancePlacementConfig": spec.instance_placement_config,
            "InstancePreferences": preferences,
        }
    )


def _plan_arn(spec: TrainingJobSpec, *, account: str | None, region: str) -> str | None:
    plan = spec.training_plan
    if plan is None or plan.startswith("arn:"):
        return plan
    _, partition, _, _, owner, _ = role_arn(spec.role, account, region=region).split(":", 5)
    return f"arn:{partition}:sagemaker:{region}:{owner}:training-plan/{plan}"


def _stopping(spec: TrainingJobSpec) -> dict[str, Any]:
    return present(
        {
            "MaxRuntimeInSeconds": spec.max_run,
            "MaxWaitTimeInSeconds": spec.max_wait,
            "MaxPendingTimeInSeconds": spec.max_pending_time_in_seconds,
        }
    )


def _places(spec: TrainingJobSpec, kms_key_id: str | None) -> dict[str, str]:
    """Return the environment variables that name the S3 prefixes and the KMS key for the scripts' uploads.

    The scripts upload checkpoints to one prefix and rule statistics to another. The result is empty if the job
    has no entry point, no checkpoints in S3 or no network access. If the job has a DebugHookConfig, the result
    has the prefix of the checkpoints only, because the statistics then go to the S3 path of the
    DebugHookConfig.
    """
    if not (spec.entry_point and spec.checkpoint_s3_uri) or spec.enable_network_isolation:
        return {}
    places = place_variables(spec.checkpoint_s3_uri)
    if spec.debugger_hook_config:  # they go where the hook's do
        places.pop(STATISTICS_VARIABLE)
    elif kms_key_id:
        places[KMS_KEY_VARIABLE] = kms_key_id
    return places


def _watching(spec: TrainingJobSpec) -> dict[str, Any]:
    """Return the request's members for checkpoints, retries, debugging, tracking and registration."""
    checkpoints = {
        "S3Uri": spec.checkpoint_s3_uri,
        "LocalPath": spec.checkpoint_local_path,
    }
    profiler = dict(spec.profiler_config or {})
    if spec.disable_profiler is not None:
        profiler["DisableProfiler"] = spec.disable_profiler
    return {
        "CheckpointConfig": present(checkpoints),
        "RetryStrategy": _wrapped("MaximumRetryAttempts", spec.max_retry_attempts),
        "DebugHookConfig": spec.debugger_hook_config,
        "DebugRuleConfigurations": list(spec.rules),
        "ProfilerConfig": profiler,
        "ProfilerRuleConfigurations": list(spec.profiler_rules),
        "TensorBoardOutputConfig": spec.tensorboard_output_config,
        "ExperimentConfig": spec.experiment_config,
        "RemoteDebugConfig": _wrapped("EnableRemoteDebug", spec.enable_remote_debug),
        "InfraCheckConfig": _wrapped("EnableInfraCheck", spec.enable_infra_check),
        "SessionChainingConfig": _wrapped(
            "EnableSessionTagChaining", spec.enable_session_tag_chaining
        ),
        "ModelPackageConfig": spec.model_package_config,
        "MlflowConfig": spec.mlflow_config,
        "ServerlessJobConfig": spec.serverless_job_config,
    }


def _wrapped(member: str, value: object) -> dict[str, Any] | None:
    return None if value is None else {member: value}
