"""Debugger and profiler of a training job: configuration files in the instances, and folders uploaded to S3.

Sources for the configuration files: smdebug's `core/json_config.py` (debughookconfig.json,
tensorboardoutputconfig.json) and `profiler/profiler_config_parser.py` (profilerconfig.json). Source for the
S3 prefixes of the outputs: the developer guide.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagemaker_engine.channels.locations import S3Location
from sagemaker_engine.jobs.container import CHECKPOINTS_INSIDE
from sagemaker_engine.jobs.instances import ML_INSIDE
from sagemaker_engine.jobs.job import JobError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sagemaker_engine.jobs.instances import Ground
    from sagemaker_engine.jobs.job import HostPlan, Job

STATISTICS_FOLDER = "statistics"
"""Folder under the checkpoints, the output or the output data into which training scripts write the rules' input."""
TENSORS_INSIDE = "/opt/ml/output/tensors"
PROFILER_INSIDE = "/opt/ml/output/profiler"
TENSORBOARD_INSIDE = "/opt/ml/output/tensorboard"


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugOutput:
    """One folder that every instance has and that is uploaded to S3 while the job writes to it.

    `name` is the last part of the folder's S3 prefix, such as `debug-output`.
    """

    name: str
    path: str
    location: S3Location

    def folder(self, job: Job, ground: Ground, host: HostPlan) -> Path:
        """Return the path of an instance's folder on this machine.

        Raises:
            JobError: The folder is outside /opt/ml, and this machine cannot mount.
        """
        if self.is_mounted and ground.has_mounts:
            return job.host_folder(host.name) / self.name
        return _ml_path(job, host, Path(self.path))

    @property
    def is_mounted(self) -> bool:
        """True if the folder is not part of the instance's /opt/ml."""
        return not Path(self.path).is_relative_to(ML_INSIDE)


def debug_outputs(job: Job) -> list[DebugOutput]:
    """Return the folders that the job's Debugger, profiler and TensorBoard configurations name.

    Raises InputDataError if an S3OutputPath is not an S3 URI.
    """
    request = job.request
    wanted = [
        ("debug-output", request.get("DebugHookConfig"), TENSORS_INSIDE),
        ("profiler-output", _enabled_profiler(request), PROFILER_INSIDE),
        ("tensorboard-output", request.get("TensorBoardOutputConfig"), TENSORBOARD_INSIDE),
    ]
    return [
        DebugOutput(
            name=name,
            path=config.get("LocalPath") or path,
            location=S3Location.parse(config["S3OutputPath"]).join(f"{job.name}/{name}"),
        )
        for name, config, path in wanted
        if config and config.get("S3OutputPath")
    ]


def config_files(request: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return Debugger's files in /opt/ml/input/config: content by file name."""
    files: dict[str, dict[str, Any]] = {}
    if hook := request.get("DebugHookConfig"):
        files["debughookconfig.json"] = {"LocalPath": TENSORS_INSIDE, **hook}
    if profiler := _enabled_profiler(request):
        parameters = {
            "ProfilerEnabled": True,
            "LocalPath": PROFILER_INSIDE,
            **profiler.get("ProfilingParameters", {}),
        }
        files["profilerconfig.json"] = {**profiler, "ProfilingParameters": parameters}
    if board := request.get("TensorBoardOutputConfig"):
        files["tensorboardoutputconfig.json"] = {"LocalPath": TENSORBOARD_INSIDE, **board}
    return files


def unsaved_collections(job: Job, ground: Ground, hosts: Sequence[HostPlan]) -> str | None:
    """Return a log line if tensor collections were requested and no host saved any, otherwise None.

    Trainyard's scripts write statistics of the tensors. AWS's images save the tensors themselves, by a hook that is
    patched into the framework; the engine's environments have no such hook.
    """
    hook = job.request.get("DebugHookConfig") or {}
    names = [each["CollectionName"] for each in hook.get("CollectionConfigurations") or ()]
    outputs = [each for each in debug_outputs(job) if each.name == "debug-output"]
    folders = [output.folder(job, ground, host) for output in outputs for host in hosts]
    if not names or any(path.is_file() for folder in folders for path in folder.rglob("*")):
        return None
    return (
        f"DebugHookConfig requests the collections {', '.join(names)}, but nothing was saved in "
        f"{outputs[0].path}, because the engine's images have no Debugger hook. There is no object under "
        f"{outputs[0].location.uri}/"
    )


def statistics_folders(job: Job, ground: Ground, hosts: Sequence[HostPlan]) -> list[Path]:
    """Return the possible folders of the instances' statistics: Debugger output, checkpoints, output, output data.

    Raises:
        JobError: One of the folders is outside /opt/ml, and this machine cannot mount.
    """
    folders = []
    for host in hosts:
        folders += [
            output.folder(job, ground, host)
            for output in debug_outputs(job)
            if output.name == "debug-output"
        ]
        if "CheckpointConfig" in job.request:
            folders.append(checkpoint_folder(job, ground, host) / STATISTICS_FOLDER)
        output = job.ml_folder(host.name) / "output"
        folders += [output / STATISTICS_FOLDER, output / "data" / STATISTICS_FOLDER]
    return folders


def checkpoint_folder(job: Job, ground: Ground, host: HostPlan) -> Path:
    """Return the path of an instance's checkpoint folder on this machine.

    Raises:
        JobError: The folder is outside /opt/ml, and this machine cannot mount.
    """
    if ground.has_mounts:
        return job.host_folder(host.name) / "checkpoints"
    return _ml_path(job, host, checkpoint_path(job))


def _ml_path(job: Job, host: HostPlan, path: Path) -> Path:
    """Return the path on this machine for a path under /opt/ml inside an instance.

    Raises:
        JobError: The path is outside /opt/ml.
    """
    if not path.is_relative_to(ML_INSIDE):
        raise JobError(
            f"ClientError: LocalPath '{path}' must begin with {ML_INSIDE}/ on this machine, which does not allow mounts"
        )
    return job.ml_folder(host.name) / path.relative_to(ML_INSIDE)


def checkpoint_path(job: Job) -> Path:
    """Return the path of the checkpoint folder inside the instances."""
    config = job.request.get("CheckpointConfig", {})
    return Path(config.get("LocalPath", CHECKPOINTS_INSIDE))


def _enabled_profiler(request: Mapping[str, Any]) -> dict[str, Any] | None:
    config: dict[str, Any] = request.get("ProfilerConfig") or {}
    return None if config.get("DisableProfiler") else config or None
