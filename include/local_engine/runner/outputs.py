"""What a training job leaves in S3: its model and its output data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from include.local_engine.channels.locations import S3Location
from include.local_engine.runner import artifacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from include.local_engine.runner.job import HostPlan, Job


def upload_outputs(job: Job, hosts: Sequence[HostPlan]) -> str:
    """Upload the model and the output data of all instances; return the URI of the model.

    Fails with S3Error: the bucket does not exist, or S3 does not take it before patience is over.
    """
    config = job.request["OutputDataConfig"]
    target = S3Location.parse(config["S3OutputPath"]).join(f"{job.name}/output")
    models = [job.ml_folder(host.name) / "model" for host in hosts]
    outputs = [job.ml_folder(host.name) / "output" / "data" for host in hosts]
    objects, patience = job.objects, job.patience
    if config.get("CompressionType") == "NONE":
        artifacts.upload_tree(models, target.join("model"), objects, patience=patience)
        artifacts.upload_tree(outputs, target.join("data"), objects, patience=patience)
        return target.join("model").uri + "/"
    scratch = job.folder / "scratch"
    archive = partial(artifacts.upload_archive, objects=objects, scratch=scratch, patience=patience)
    archive(models, target.join("model.tar.gz"))
    if artifacts.merged_files(outputs):
        archive(outputs, target.join("output.tar.gz"))
    return target.join("model.tar.gz").uri
