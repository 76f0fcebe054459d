"""Outputs of a training job in S3: its model and its output data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sagemaker_engine.channels.locations import S3Location
from sagemaker_engine.jobs import artifacts
from sagemaker_engine.jobs.artifacts import Leaving
from sagemaker_engine.jobs.instance_files import instance_files, path_inside
from sagemaker_engine.jobs.instances import ML_INSIDE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sagemaker_engine.jobs.instances import Ground
    from sagemaker_engine.jobs.job import HostPlan, Job


def upload_outputs(
    job: Job, ground: Ground, hosts: Sequence[HostPlan], *, carry: Callable[[int], None]
) -> str:
    """Upload the model and the output data of all instances; return the URI of the model.

    `carry` is called with a size in bytes and returns when the upload's time at the host's bandwidth is over.

    Raises S3Error if the bucket does not exist, or if S3 still rejects an upload when the time for retries is over.
    """
    config = job.request["OutputDataConfig"]
    target = S3Location.parse(config["S3OutputPath"]).join(f"{job.name}/output")
    models, outputs = (
        [
            Leaving(
                files=instance_files(job, ground, host),
                path=path_inside(job, ground, host, f"{ML_INSIDE}/{name}"),
                tell=partial(job.say, host.name),
            )
            for host in hosts
        ]
        for name in ("model", "output/data")
    )
    objects, retrier = job.objects, job.retrier
    if config.get("CompressionType") == "NONE":
        artifacts.upload_tree(models, target.join("model"), objects, retrier=retrier, carry=carry)
        artifacts.upload_tree(outputs, target.join("data"), objects, retrier=retrier, carry=carry)
        return target.join("model").uri + "/"
    scratch = job.folder / "scratch"
    archive = partial(
        artifacts.upload_archive, objects=objects, scratch=scratch, retrier=retrier, carry=carry
    )
    archive(models, target.join("model.tar.gz"))
    archive(outputs, target.join("output.tar.gz"), is_optional=True)
    return target.join("model.tar.gz").uri
