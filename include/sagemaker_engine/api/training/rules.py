"""Rules of CreateTrainingJob that the service model cannot express, in the service's order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.instance_storage import storage_problems
from sagemaker_engine.api.request_rules import duplicate_tags, duplicates, is_folder_path
from sagemaker_engine.api.training.debugger_rules import debugger_problems
from sagemaker_engine.coverage import PAGE, REJECTED_MEMBERS
from sagemaker_engine.plans.use import rule_problems
from sagemaker_engine.wire.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Request = dict[str, Any]


def check_training_request(request: Request) -> None:
    """Check the rules that the service model cannot express.

    Raises:
        ValidationError: A rule is violated; the message is about the first such rule.
    """
    for rule in _RULES:
        for problem in rule(request):
            raise ValidationError(problem)


def rejected_members(request: Request) -> Iterator[str]:
    """Yield an error for each member that the engine does not support."""
    for member, why in REJECTED_MEMBERS.items():
        if member in request:
            yield f"{member} is not supported by the local engine: {why}. Leave it out, or see {PAGE}."


def _algorithm(request: Request) -> Iterator[str]:
    algorithm = request.get("AlgorithmSpecification")
    if algorithm is None:
        yield "AlgorithmSpecification is required unless ServerlessJobConfig is given."
        return
    given = [key for key in ("TrainingImage", "AlgorithmName") if algorithm.get(key)]
    if len(given) != 1:
        yield (
            "You must specify either a TrainingImage or an AlgorithmName, and not both, in "
            f"AlgorithmSpecification; got {' and '.join(given) or 'neither'}."
        )
    if "ContainerArguments" in algorithm and not algorithm.get("TrainingImage"):
        yield "ContainerArguments can only be given together with a TrainingImage."


def _resources(request: Request) -> Iterator[str]:
    resources = request.get("ResourceConfig")
    if resources is None:
        yield "ResourceConfig is required unless ServerlessJobConfig is given."
        return
    groups = resources.get("InstanceGroups")
    single = [key for key in ("InstanceType", "InstanceCount") if key in resources]
    if groups and single:
        yield (
            "InstanceGroups in ResourceConfig is mutually exclusive with InstanceType and "
            f"InstanceCount; got InstanceGroups and {' and '.join(single)}."
        )
    if not groups and not resources.get("InstancePreferences") and len(single) != 2:
        missing = {"InstanceType", "InstanceCount"} - set(single)
        yield (
            f"{' and '.join(sorted(missing))} in ResourceConfig must be given if neither "
            "InstanceGroups nor InstancePreferences is given."
        )
    names = [group.get("InstanceGroupName") for group in groups or ()]
    if len(set(names)) != len(names):
        yield f"InstanceGroupName must be unique in InstanceGroups; got {', '.join(names)}."
    yield from storage_problems(resources)
    if groups is None and resources.get("VolumeSizeInGB") == 0:
        yield "VolumeSizeInGB in ResourceConfig must be greater than or equal to 1."


def _spot(request: Request) -> Iterator[str]:
    condition = request.get("StoppingCondition", {})
    spot = request.get("EnableManagedSpotTraining", False)
    wait, run = condition.get("MaxWaitTimeInSeconds"), condition.get("MaxRuntimeInSeconds", 86400)
    if spot and (wait is None or wait < run):
        yield (
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to "
            "MaxRuntimeInSeconds"
        )
    if not spot and wait is not None:
        yield (
            "Invalid MaxWaitTimeInSeconds. It can only be given when EnableManagedSpotTraining is "
            "true"
        )


def _warm_pool(request: Request) -> Iterator[str]:
    resources = request.get("ResourceConfig", {})
    if not resources.get("KeepAlivePeriodInSeconds"):
        return
    if request.get("EnableManagedSpotTraining"):
        yield "KeepAlivePeriodInSeconds cannot be used together with EnableManagedSpotTraining."
    if resources.get("InstanceGroups"):
        yield "KeepAlivePeriodInSeconds cannot be used together with InstanceGroups."


def _channels(request: Request) -> Iterator[str]:
    channels = request.get("InputDataConfig", [])
    names = [channel["ChannelName"] for channel in channels]
    yield from duplicates("Channel names", names)
    groups = _group_names(request)
    for name in {".", ".."}.intersection(names):
        yield f"Channel name {name!r} cannot be a folder of /opt/ml/input/data; give it a letter or a digit."
    for channel in channels:
        yield from _channel(channel, groups, request)


def _channel(channel: Request, groups: set[str], request: Request) -> Iterator[str]:
    name, source = channel["ChannelName"], channel["DataSource"]
    given = [key for key, value in source.items() if value]
    if len(given) != 1:
        yield (
            f"Channel {name} must have exactly one of S3DataSource and FileSystemDataSource; got "
            f"{' and '.join(given) or 'neither'}."
        )
    s3 = source.get("S3DataSource", {})
    unknown = sorted(set(s3.get("InstanceGroupNames", ())) - groups)
    if unknown:
        yield (
            f"Channel {name} names the instance groups {', '.join(unknown)}, which ResourceConfig "
            f"does not have; it has {', '.join(sorted(groups)) or 'none'}."
        )
    algorithm = request.get("AlgorithmSpecification", {})
    mode = channel.get("InputMode") or algorithm.get("TrainingInputMode")
    if s3.get("S3DataType") == "AugmentedManifestFile":
        if not s3.get("AttributeNames"):
            yield f"Channel {name}: AugmentedManifestFile needs AttributeNames."
        if mode == "FastFile":
            yield f"Channel {name}: AugmentedManifestFile cannot be read in FastFile mode."
    elif s3.get("AttributeNames"):
        yield f"Channel {name}: AttributeNames are only for AugmentedManifestFile."
    if "FileSystemDataSource" in source and "VpcConfig" not in request:
        yield f"Channel {name}: FileSystemDataSource needs a VpcConfig in the request."
    if mode == "FastFile" and channel.get("CompressionType") == "Gzip":
        yield f"Channel {name}: CompressionType Gzip is not supported in FastFile mode."


def _metrics(request: Request) -> Iterator[str]:
    definitions = request.get("AlgorithmSpecification", {}).get("MetricDefinitions", [])
    yield from duplicates("Metric names", [definition["Name"] for definition in definitions])


def _retries(request: Request) -> Iterator[str]:
    checkpoint = request.get("CheckpointConfig", {}).get("LocalPath")
    if checkpoint is not None and not is_folder_path(checkpoint):
        yield f"LocalPath in CheckpointConfig must be an absolute path of a folder below /; got {checkpoint!r}."


def _group_names(request: Request) -> set[str]:
    groups = request.get("ResourceConfig", {}).get("InstanceGroups", [])
    return {group["InstanceGroupName"] for group in groups}


_RULES: tuple[Callable[[Request], Iterator[str]], ...] = (
    rejected_members,
    _algorithm,
    _resources,
    _spot,
    _warm_pool,
    rule_problems,
    _channels,
    _metrics,
    duplicate_tags,
    _retries,
    debugger_problems,
)
