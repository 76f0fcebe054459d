"""Outputs of a training job in S3: its model and its output data, merged from all instances."""

from __future__ import annotations

import os
import tarfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_engine.channels.container_files import printable
from sagemaker_engine.channels.locations import S3Location
from sagemaker_engine.jobs.instance_files import instance_files, path_inside
from sagemaker_engine.jobs.instances import ML_INSIDE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sagemaker_engine.channels.container_files import ContainerFiles
    from sagemaker_engine.channels.retrier import Retrier
    from sagemaker_engine.jobs.instances import Ground
    from sagemaker_engine.jobs.job import HostPlan, Job
    from sagemaker_engine.s3.object_store import ObjectStore

GZIP_LEVEL = 1
"""Level 1 is several times faster than higher ones, and weights hardly compress. AWS documents no level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFolder:
    """Output folder of an instance. `path` is its path inside the instance; `warn` logs each file that is skipped."""

    files: ContainerFiles
    path: str
    warn: Callable[[str], None]


def upload_outputs(
    job: Job, ground: Ground, hosts: Sequence[HostPlan], *, carry: Callable[[int], None]
) -> str:
    """Upload the model and the output data of all instances; return the URI of the model.

    `carry` receives the size of an upload in bytes and blocks for the time that this upload takes at the host's
    bandwidth.

    Raises:
        S3Error: The bucket does not exist, or S3 still rejects an upload when the time for retries is over.
    """
    config = job.request["OutputDataConfig"]
    target = S3Location.parse(config["S3OutputPath"]).join(f"{job.name}/output")
    models, outputs = (
        [
            OutputFolder(
                files=instance_files(job, ground, host),
                path=path_inside(job, ground, host, f"{ML_INSIDE}/{name}"),
                warn=partial(job.log_line, host.name),
            )
            for host in hosts
        ]
        for name in ("model", "output/data")
    )
    objects, retrier = job.objects, job.retrier
    if config.get("CompressionType") == "NONE":
        _upload_tree(models, target.join("model"), objects, retrier=retrier, carry=carry)
        _upload_tree(outputs, target.join("data"), objects, retrier=retrier, carry=carry)
        return target.join("model").uri + "/"
    scratch = job.folder / "scratch"
    archive = partial(
        _upload_archive, objects=objects, scratch=scratch, retrier=retrier, carry=carry
    )
    archive(models, target.join("model.tar.gz"))
    archive(outputs, target.join("output.tar.gz"), is_optional=True)
    return target.join("model.tar.gz").uri


def _merged_files(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the files of several folders by relative path. The first folder wins if a path is in several."""
    found: dict[str, Path] = {}
    for folder in folders:
        for parent, folders_inside, names in os.walk(folder):
            links = [name for name in folders_inside if Path(parent, name).is_symlink()]
            for name in (*names, *links):
                path = Path(parent, name)
                found.setdefault(str(path.relative_to(folder)), path)
    return dict(sorted(found.items()))


def _upload_archive(
    folders: Sequence[OutputFolder],
    target: S3Location,
    objects: ObjectStore,
    *,
    scratch: Path,
    retrier: Retrier,
    carry: Callable[[int], None],
    is_optional: bool = False,
) -> None:
    """Store the merged folders as one tar.gz. If they are empty and `is_optional`, store nothing.

    `carry` receives the size of the archive in bytes and blocks for the time that its upload takes at the host's
    bandwidth. The archive has times, modes and links, but no owners.

    Raises:
        S3Error: The bucket does not exist, or S3 still rejects the upload when the time for retries is over.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    archive = scratch / target.key.rpartition("/")[2]
    with ExitStack() as stack:
        seen = [stack.enter_context(each.files.folder(each.path)) for each in folders]
        found = _merged_files([each for each in seen if each is not None])
        if not found and is_optional:
            return
        with tarfile.open(archive, "w:gz", compresslevel=GZIP_LEVEL) as tar:
            for name, path in found.items():
                tar.add(path, arcname=name, recursive=False, filter=_anonymous)
    carry(archive.stat().st_size)
    retrier.ask(lambda: objects.put(target.bucket, target.key, archive, link=True), what=target.uri)
    archive.unlink()


def _upload_tree(
    folders: Sequence[OutputFolder],
    target: S3Location,
    objects: ObjectStore,
    *,
    retrier: Retrier,
    carry: Callable[[int], None],
) -> None:
    """Store every file of the merged folders under the target's prefix.

    Links are followed as a program inside the instance would follow them. The first folder wins if a path is in
    several.

    Raises:
        S3Error: The bucket does not exist, or S3 still rejects an upload when the time for retries is over.
    """
    taken: set[str] = set()
    for each in folders:
        found = each.files.scan(each.path)
        for name, reason in found.odd.items():
            each.warn(f"{printable(f'{each.path}/{name}')} is not uploaded: it {reason}")
        for name in sorted(found.files.keys() - taken):
            place = target.join(name)
            carry(found.files[name].size)
            retrier.ask(partial(_put, each, name, place, objects), what=place.uri)
            taken.add(name)


def _put(folder: OutputFolder, name: str, place: S3Location, objects: ObjectStore) -> None:
    with folder.files.open(f"{folder.path}/{name}") as file:
        objects.put(place.bucket, place.key, file)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not (member.isreg() or member.issym() or member.islnk()):
        return None  # Sockets and FIFOs are not part of a model.
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
