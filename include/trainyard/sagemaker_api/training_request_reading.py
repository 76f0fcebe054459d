"""Fields of a TrainingJobSpec from a CreateTrainingJob request: the inverse of `training_request`.

It reads requests of other tools, such as the SageMaker SDK v3. Hyperparameters keep their wire text: the spec then
renders as the same request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError, unknown_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_Path = tuple[str, ...]

_FIELDS: dict[_Path, str] = {
    ("RoleArn",): "role",
    ("HyperParameters",): "hyperparameters",
    ("Environment",): "environment",
    ("AlgorithmSpecification", "TrainingImage"): "image_uri",
    ("AlgorithmSpecification", "AlgorithmName"): "algorithm_name",
    ("AlgorithmSpecification", "TrainingInputMode"): "input_mode",
    ("AlgorithmSpecification", "ContainerEntrypoint"): "container_entry_point",
    ("AlgorithmSpecification", "ContainerArguments"): "container_arguments",
    ("AlgorithmSpecification", "TrainingImageConfig"): "training_image_config",
    ("AlgorithmSpecification", "EnableSageMakerMetricsTimeSeries"): "enable_sagemaker_metrics",
    ("OutputDataConfig", "S3OutputPath"): "output_path",
    ("OutputDataConfig", "KmsKeyId"): "output_kms_key",
    ("ResourceConfig", "InstanceType"): "instance_type",
    ("ResourceConfig", "InstanceCount"): "instance_count",
    ("ResourceConfig", "VolumeSizeInGB"): "volume_size",
    ("ResourceConfig", "VolumeKmsKeyId"): "volume_kms_key",
    ("ResourceConfig", "KeepAlivePeriodInSeconds"): "keep_alive_period_in_seconds",
    ("ResourceConfig", "TrainingPlanArn"): "training_plan",
    ("ResourceConfig", "InstancePlacementConfig"): "instance_placement_config",
    ("StoppingCondition", "MaxRuntimeInSeconds"): "max_run",
    ("StoppingCondition", "MaxWaitTimeInSeconds"): "max_wait",
    ("StoppingCondition", "MaxPendingTimeInSeconds"): "max_pending_time_in_seconds",
    ("VpcConfig", "Subnets"): "subnets",
    ("VpcConfig", "SecurityGroupIds"): "security_group_ids",
    ("CheckpointConfig", "S3Uri"): "checkpoint_s3_uri",
    ("CheckpointConfig", "LocalPath"): "checkpoint_local_path",
    ("RetryStrategy", "MaximumRetryAttempts"): "max_retry_attempts",
    ("RemoteDebugConfig", "EnableRemoteDebug"): "enable_remote_debug",
    ("InfraCheckConfig", "EnableInfraCheck"): "enable_infra_check",
    ("SessionChainingConfig", "EnableSessionTagChaining"): "enable_session_tag_chaining",
    ("DebugHookConfig",): "debugger_hook_config",
    ("DebugRuleConfigurations",): "rules",
    ("ProfilerConfig",): "profiler_config",
    ("ProfilerRuleConfigurations",): "profiler_rules",
    ("TensorBoardOutputConfig",): "tensorboard_output_config",
    ("ExperimentConfig",): "experiment_config",
    ("ModelPackageConfig",): "model_package_config",
    ("MlflowConfig",): "mlflow_config",
    ("ServerlessJobConfig",): "serverless_job_config",
}
_SWITCHES: dict[_Path, tuple[str, object]] = {
    ("EnableNetworkIsolation",): ("enable_network_isolation", True),
    ("EnableInterContainerTrafficEncryption",): ("encrypt_inter_container_traffic", True),
    ("EnableManagedSpotTraining",): ("use_spot_instances", True),
    ("OutputDataConfig", "CompressionType"): ("disable_output_compression", "NONE"),
}
"""Members that are boolean fields in a spec: the field, and the wire value for True."""
_S3_MEMBERS = {
    "S3Uri": "s3_data",
    "S3DataType": "s3_data_type",
    "S3DataDistributionType": "distribution",
    "AttributeNames": "attribute_names",
    "InstanceGroupNames": "instance_groups",
    "ModelAccessConfig": "model_access_config",
    "HubAccessConfig": "hub_access_config",
}
_FILE_SYSTEM_MEMBERS = {
    "FileSystemId": "file_system_id",
    "FileSystemType": "file_system_type",
    "FileSystemAccessMode": "file_system_access_mode",
    "DirectoryPath": "directory_path",
}
_SOURCES = {
    "S3DataSource": _S3_MEMBERS,
    "FileSystemDataSource": _FILE_SYSTEM_MEMBERS,
    "DatasetSource": {"DatasetArn": "dataset_arn"},
}
_CHANNEL_MEMBERS = {
    "ContentType": "content_type",
    "CompressionType": "compression",
    "RecordWrapperType": "record_wrapping",
    "InputMode": "input_mode",
}
_GROUP_MEMBERS = {
    "InstanceGroupName": "instance_group_name",
    "InstanceType": "instance_type",
    "InstanceCount": "instance_count",
}
_PREFERENCE_MEMBERS = {
    "InstanceType": "instance_type",
    "InstanceCount": "instance_count",
    "TrainingPlanArns": "training_plan_arns",
}


def training_job_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the TrainingJobSpec that renders as this request. The job's name is left out.

    Members without a field in the spec are unchanged in `raw_request_overrides`.

    Raises:
        SpecError: a channel, instance group or instance preference has an unknown member.
    """
    rest = _copied(request)
    rest.pop("TrainingJobName", None)
    fields: dict[str, Any] = {}
    for path, field in _FIELDS.items():
        if (value := _taken(rest, path)) is not None:
            fields[field] = value
    for path, (field, is_true) in _SWITCHES.items():
        if _value(rest, path) == is_true:
            _taken(rest, path)
            fields[field] = True
    for path, (field, read) in _LISTS.items():
        if (value := _taken(rest, path)) is not None:
            fields[field] = read(value)
    left = {name: value for name, value in rest.items() if value not in ({}, None)}
    return {**fields, "raw_request_overrides": left} if left else fields


def _channels(listed: list[Mapping[str, Any]]) -> dict[str, Any]:
    return {each["ChannelName"]: _channel(each) for each in listed}


def _channel(channel: Mapping[str, Any]) -> dict[str, Any]:
    where = f"InputDataConfig[{channel['ChannelName']}]"
    rest = {name: value for name, value in channel.items() if name != "ChannelName"}
    source = rest.pop("DataSource")
    shuffle = rest.pop("ShuffleConfig", None)
    fields: dict[str, Any] = {} if shuffle is None else {"shuffle_seed": shuffle["Seed"]}
    for kind, members in source.items():
        if kind not in _SOURCES:
            raise SpecError(unknown_key(f"{where}.DataSource", kind, list(_SOURCES)))
        fields |= _renamed(members, _SOURCES[kind], f"{where}.DataSource.{kind}")
    return fields | _renamed(rest, _CHANNEL_MEMBERS, where)


def _metrics(listed: list[Mapping[str, str]]) -> list[dict[str, str]]:
    return [{"name": each["Name"], "regex": each["Regex"]} for each in listed]


def _tags(listed: list[Mapping[str, str]]) -> dict[str, str]:
    return {each["Key"]: each["Value"] for each in listed}


def _groups(listed: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [_renamed(each, _GROUP_MEMBERS, "ResourceConfig.InstanceGroups") for each in listed]


def _preferences(listed: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    where = "ResourceConfig.InstancePreferences"
    return [_renamed(each, _PREFERENCE_MEMBERS, where) for each in listed]


_LISTS: dict[_Path, tuple[str, Callable[[Any], Any]]] = {
    ("InputDataConfig",): ("inputs", _channels),
    ("Tags",): ("tags", _tags),
    ("AlgorithmSpecification", "MetricDefinitions"): ("metric_definitions", _metrics),
    ("ResourceConfig", "InstanceGroups"): ("instance_groups", _groups),
    ("ResourceConfig", "InstancePreferences"): ("instance_preferences", _preferences),
}


def _renamed(members: Mapping[str, Any], names: Mapping[str, str], where: str) -> dict[str, Any]:
    unknown: list[Finding] = [
        unknown_key(where, each, list(names)) for each in members if each not in names
    ]
    if unknown:
        raise SpecError(unknown, subject="CreateTrainingJob")
    return {names[name]: value for name, value in members.items() if value is not None}


def _value(request: Mapping[str, Any], path: _Path) -> Any:
    value: Any = request
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _taken(request: dict[str, Any], path: _Path) -> Any:
    """Remove the value at a path and return it; None if there is none."""
    parent = _value(request, path[:-1]) if path[:-1] else request
    return parent.pop(path[-1], None) if isinstance(parent, dict) else None


def _copied(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the request, two levels deep.

    The caller removes members from the copy. A member's path has at most two parts.
    """
    return {
        name: dict(value) if isinstance(value, dict) else value for name, value in request.items()
    }
