"""Files of an instance: the mapping from its paths to this machine's folders, and the texts in its output folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_engine.channels.container_files import ContainerFiles
from sagemaker_engine.jobs import inputs
from sagemaker_engine.jobs.debugger import checkpoint_folder, checkpoint_path, debug_outputs
from sagemaker_engine.jobs.failures import algorithm_error, read_words
from sagemaker_engine.jobs.instances import ML_INSIDE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sagemaker_engine.jobs.instances import Ground
    from sagemaker_engine.jobs.job import HostPlan, Job
    from sagemaker_engine.jobs.supervision import Outcome


def instance_files(job: Job, ground: Ground, host: HostPlan) -> ContainerFiles:
    """Return an instance's folders, each with its path inside the instance and its path on this machine.

    On a machine without mounts, both paths are the same, so the programs use this machine's paths.
    """
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
    """Return the path at which an instance's programs find a file or folder of /opt/ml.

    `path` is its path on SageMaker. If /opt/ml cannot be a mount, the result is a path of this machine instead.
    """
    if ground.has_mounts:
        return path
    return str(job.ml_folder(host.name) / Path(path).relative_to(ML_INSIDE))


def failure_reason(job: Job, ground: Ground, hosts: Sequence[HostPlan], outcome: Outcome) -> str:
    """Return the FailureReason of instances whose outcome is FAILED.

    Raises:
        AssertionError: The instances ended in another way.
    """
    if outcome.failure is None:
        raise AssertionError("a failed outcome must name the instance that failed")
    host = next(each for each in hosts if each.name == outcome.failure.instance)
    words = output_text(job, ground, host, "failure")
    return algorithm_error(outcome.failure, words, last_line=outcome.last_line)


def output_text(job: Job, ground: Ground, host: HostPlan, name: str) -> str:
    """Return the first 1024 characters of a file in an instance's /opt/ml/output; empty if it is not a regular file."""
    path = path_inside(job, ground, host, f"{ML_INSIDE}/output/{name}")
    return read_words(instance_files(job, ground, host), path)
