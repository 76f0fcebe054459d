"""Container contract of a training job: configuration files, environment variables and the command."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from sagemaker_engine.access.role_credentials import role_access_key
from sagemaker_engine.jobs.launching import JOB_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sagemaker_engine.jobs.images import ImageRuntime
    from sagemaker_engine.jobs.job import HostPlan, Job

STUBS_INSIDE = "/opt/trainyard"
"""Path inside an instance at which the warm workers' programs and socket are mounted."""
HOME_INSIDE = "/opt/home"
CHECKPOINTS_INSIDE = "/opt/ml/checkpoints"


def write_training_config(
    job: Job,
    host: HostPlan,
    hosts: Sequence[HostPlan],
    nic: str,
    *,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write /opt/ml/input/config of one instance and create the folders of the container contract.

    `more` is the content of further configuration files, by name.
    """
    ml = job.ml_folder(host.name)
    for name in ("input/config", "input/data", "model", "output/data", "code"):
        (ml / name).mkdir(parents=True, exist_ok=True)
    config = ml / "input" / "config"
    _write(config / "hyperparameters.json", job.request.get("HyperParameters", {}))
    channels = job.request.get("InputDataConfig", [])
    mode = job.request["AlgorithmSpecification"].get("TrainingInputMode", "File")
    _write(
        config / "inputdataconfig.json",
        {each["ChannelName"]: _channel_config(each, mode) for each in channels},
    )
    _write(config / "resourceconfig.json", resource_config(host, hosts, nic))
    if "CheckpointConfig" in job.request:
        default = {"LocalPath": CHECKPOINTS_INSIDE}
        _write(config / "checkpointconfig.json", default | job.request["CheckpointConfig"])
    for file, content in (more or {}).items():
        _write(config / file, content)


def resource_config(host: HostPlan, hosts: Sequence[HostPlan], nic: str) -> dict[str, Any]:
    """Return the content of an instance's resourceconfig.json."""
    groups: dict[str, dict[str, Any]] = {}
    for each in hosts:
        group = groups.setdefault(
            each.group,
            {"instance_group_name": each.group, "instance_type": each.instance_type, "hosts": []},
        )
        group["hosts"].append(each.name)
    return {
        "current_host": host.name,
        "current_instance_type": host.instance_type,
        "current_group_name": host.group,
        "hosts": sorted((each.name for each in hosts), key=_natural),
        "instance_groups": list(groups.values()),
        "network_interface_name": nic,
    }


def _natural(name: str) -> tuple[int, str]:
    return (len(name), name)


def _channel_config(channel: Mapping[str, Any], mode: str) -> dict[str, str]:
    source = channel["DataSource"].get("S3DataSource", {})
    config = {
        "TrainingInputMode": channel.get("InputMode", mode),
        "S3DistributionType": source.get("S3DataDistributionType", "FullyReplicated"),
        "RecordWrapperType": channel.get("RecordWrapperType", "None"),
    }
    if "ContentType" in channel:
        config["ContentType"] = channel["ContentType"]
    return config


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def base_environment(
    job: Job, runtime: ImageRuntime, *, num_hosts: int, stubs: str | None, endpoint_url: str | None
) -> dict[str, str]:
    """Return the variables that the image and the platform set for every process of the job.

    `stubs` is the folder of the warm workers' programs (package `warm`), or None without them. `endpoint_url` is the
    engine's URL as seen from inside the instance, or None if the job must not reach the engine.
    """
    path = [
        *([f"{stubs}/bin"] if stubs else []),
        str(runtime.bin_folder),
        *("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"),
    ]
    environment = {
        "PATH": ":".join(path),
        "HOME": HOME_INSIDE,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONIOENCODING": "UTF-8",
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // num_hosts)),
        "AWS_REGION": job.settings.region,
        JOB_VARIABLE: str(job.folder),
    }
    if runtime.source_folder is not None:
        environment["PYTHONPATH"] = str(runtime.source_folder)
    if endpoint_url is not None:
        environment |= {
            "AWS_ENDPOINT_URL": endpoint_url,
            "AWS_ACCESS_KEY_ID": role_access_key(job.request["RoleArn"]),
            "AWS_SECRET_ACCESS_KEY": "trainyard-job",
            "AWS_SESSION_TOKEN": job.name,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    return environment


def training_environment(job: Job, runtime: ImageRuntime, host: HostPlan) -> dict[str, str]:
    """Return the variables that SageMaker adds for a training job; the user's Environment overrides them."""
    environment: dict[str, str] = {
        "TRAINING_JOB_NAME": job.name,
        "TRAINING_JOB_ARN": job.arn,
        "CURRENT_HOST": host.name,
    }
    if runtime.training_module is not None:
        environment["SAGEMAKER_TRAINING_MODULE"] = runtime.training_module
    return {**environment, **job.request.get("Environment", {})}


def training_command(job: Job) -> list[str]:
    """Return the command of process 1 of every instance: the request's entry point, or the image's."""
    algorithm = job.request["AlgorithmSpecification"]
    own = [*algorithm.get("ContainerEntrypoint", []), *algorithm.get("ContainerArguments", [])]
    return own or ["train"]
