"""Mapping from a training instance's paths to this machine's folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_engine.channels.container_files import ContainerFiles
from sagemaker_engine.jobs import inputs
from sagemaker_engine.jobs.debugger import checkpoint_folder, checkpoint_path, debug_outputs
from sagemaker_engine.jobs.instances import ML_INSIDE

if TYPE_CHECKING:
    from sagemaker_engine.jobs.instances import Ground
    from sagemaker_engine.jobs.job import HostPlan, Job


def instance_files(job: Job, ground: Ground, host: HostPlan) -> ContainerFiles:
    """Return the folders of an instance. Without mounts its programs use this machine's paths."""
    own = job.ml_folder(host.name)
    if not ground.has_mounts:
        return ContainerFiles.of_folder(own)
    folders = {ML_INSIDE: own}
    for name, folder in inputs.mounted_channels(job, host):
        folders[f"{ML_INSIDE}/input/data/{name}"] = folder
    if "CheckpointConfig" in job.request:
        folders[str(checkpoint_path(job))] = checkpoint_folder(job, ground, host)
    for output in debug_outputs(job):
        if output.is_mounted:
            folders[output.path] = output.folder(job, ground, host)
    return ContainerFiles(folders=folders)


def path_inside(job: Job, ground: Ground, host: HostPlan, path: str) -> str:
    """Return the path that an instance's programs use for `path`, a path under /opt/ml on SageMaker."""
    if ground.has_mounts:
        return path
    return str(job.ml_folder(host.name) / Path(path).relative_to(ML_INSIDE))
