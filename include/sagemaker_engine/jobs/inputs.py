"""Input channels of a training job: placement of their files in the folders of its instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.channels.listing import (
    channel_files,
    files_of_host,
    s3_source,
)
from sagemaker_engine.channels.pipe import PipeFeeder, channel_records
from sagemaker_engine.channels.placement import place_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sagemaker_engine.jobs.instances import Ground
    from sagemaker_engine.jobs.job import HostPlan, Job


def provide_channels(
    job: Job, hosts: Sequence[HostPlan], *, ground: Ground
) -> tuple[list[PipeFeeder], dict[str, float]]:
    """Place the files of all channels in the folders of the instances.

    Returns:
        The feeders of the Pipe channels, not started, and the bytes that each host downloads, by
        host name.

    Raises InputDataError if a channel's data is missing or malformed.
    """
    feeders: list[PipeFeeder] = []
    downloaded = dict.fromkeys((host.name for host in hosts), 0.0)
    for channel in job.request.get("InputDataConfig", []):
        if input_mode(job, channel) == "Pipe":
            feeders += _pipes(job, channel, hosts)
        else:
            for name, num_bytes in _files(job, channel, hosts, ground=ground).items():
                downloaded[name] += num_bytes
    return feeders, downloaded


def input_mode(job: Job, channel: Mapping[str, Any]) -> str:
    """Return File, FastFile or Pipe: the channel's own mode, or the algorithm's."""
    mode: str = channel.get("InputMode") or job.request["AlgorithmSpecification"].get(
        "TrainingInputMode", "File"
    )
    return mode


def streamed_channels(job: Job) -> set[str]:
    """Return the names of the FastFile channels, whose objects are read-only and are not downloaded at the start."""
    channels = job.request.get("InputDataConfig", [])
    return {each["ChannelName"] for each in channels if input_mode(job, each) == "FastFile"}


def mounted_channels(job: Job, host: HostPlan) -> list[tuple[str, Path]]:
    """Return (name, folder) of each channel that is stored outside the instance's /opt/ml."""
    folder = job.host_folder(host.name) / "channels"
    return [(each.name, each) for each in sorted(folder.iterdir())] if folder.exists() else []


def channel_folder(job: Job, host: HostPlan, name: str, *, ground: Ground) -> Path:
    """Return the folder on this machine for an instance's files of one channel.

    If this machine can mount, the folder is outside the instance's /opt/ml folder and is mounted at the
    channel's path in /opt/ml. Otherwise it is inside the /opt/ml folder, and programs read it directly.
    """
    if ground.has_mounts:
        return job.host_folder(host.name) / "channels" / name
    return job.ml_folder(host.name) / "input" / "data" / name


def _files(
    job: Job, channel: Mapping[str, Any], hosts: Sequence[HostPlan], *, ground: Ground
) -> dict[str, int]:
    """Place the files of a channel; return the bytes that each host downloads, by host name.

    A FastFile channel counts as 0, because its objects are not downloaded at the start.
    """
    is_streamed = channel["ChannelName"] in streamed_channels(job)
    link = ground.has_overlay or (is_streamed and ground.has_mounts)
    downloaded = {}
    s3_source(channel)
    files = channel_files(channel, job.objects)
    for host in hosts:
        share = files_of_host(files, channel, host=host, hosts=hosts)
        if share is not None:
            folder = channel_folder(job, host, channel["ChannelName"], ground=ground)
            num_bytes = place_files(share, folder, job.objects, link=link)
            downloaded[host.name] = 0 if is_streamed else num_bytes
    return downloaded


def _pipes(job: Job, channel: Mapping[str, Any], hosts: Sequence[HostPlan]) -> list[PipeFeeder]:
    feeders = []
    for host in hosts:
        units = channel_records(channel, job.objects, host=host, hosts=hosts)
        if units is not None:
            folder = job.ml_folder(host.name) / "input" / "data"
            feeders.append(PipeFeeder(channel, units, folder, job.objects))
    return feeders
