"""Objects that each instance of a job receives through a channel, and their paths in the channel's folder."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sagemaker_engine.channels.locations import InputDataError, S3Location, S3RefusedError
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.objects import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sagemaker_engine.s3.object_store import ObjectStore

MAX_NAME_BYTES = 255
"""Longest name of a file or folder on Linux (NAME_MAX), in bytes; S3 keys may be longer."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFile:
    """One object of a channel, and its path relative to the channel's folder."""

    bucket: str
    key: str
    path: str


class Host(Protocol):
    """An instance of the job."""

    @property
    def group(self) -> str:
        """Name of its instance group."""


def channel_files(channel: Mapping[str, Any], objects: ObjectStore) -> list[ChannelFile]:
    """Return all files of an S3 channel in the order in which instances receive them.

    `channel` is an entry of InputDataConfig. The order is S3's or the manifest's, or a shuffle with the
    channel's seed.

    Raises:
        InputDataError: The channel has no object, a manifest is malformed, or two objects need the same path.
    """
    source = s3_source(channel)
    location = S3Location.parse(source["S3Uri"])
    match source["S3DataType"]:
        case "S3Prefix":
            files = list_prefix(location, objects)
        case "ManifestFile":
            files = read_manifest(location, objects)
        case other:
            raise InputDataError(
                f"channel {channel['ChannelName']!r} has S3DataType {other}; allowed: S3Prefix, ManifestFile, and with "
                "InputMode Pipe also AugmentedManifestFile"
            )
    if not files:
        raise InputDataError(no_objects_message(location))
    check_paths(files)
    return shuffled(files, seed=shuffle_seed(channel), epoch=0)


def s3_source(channel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the channel's S3DataSource.

    Raises:
        InputDataError: The channel reads from a file system, which the local engine does not mount.
    """
    source = channel["DataSource"]
    if "S3DataSource" not in source:
        kind = next(iter(source), "nothing")
        raise InputDataError(
            f"channel {channel['ChannelName']!r} reads from {kind}, but the local engine mounts no "
            "file systems. Put the data into S3 and use S3DataSource"
        )
    found: dict[str, Any] = source["S3DataSource"]
    return found


def no_objects_message(location: S3Location) -> str:
    """Return the service's message for a prefix without objects."""
    return (
        f'No S3 objects found under S3 URL "{location.uri}" given in input data source. Please '
        "ensure that the bucket exists, that objects exist under that S3 prefix, and that the "
        'role has "s3:ListBucket" permissions on the bucket'
    )


def list_prefix(location: S3Location, objects: ObjectStore) -> list[ChannelFile]:
    """Return the objects whose key starts with the location's key, as channel files, without folder markers.

    Raises:
        S3RefusedError: The bucket does not exist, or S3 rejects the listing.
    """
    return [
        ChannelFile(
            bucket=location.bucket, key=each.key, path=relative_path(each.key, location.key)
        )
        for each in list_objects(location, objects)
    ]


def list_objects(location: S3Location, objects: ObjectStore) -> list[ObjectInfo]:
    """Return the objects whose key starts with the location's key, without folder markers.

    Raises:
        S3RefusedError: The bucket does not exist, or S3 rejects the listing.
    """
    try:
        found = list(objects.list(location.bucket, location.key))
    except S3Error as error:
        raise S3RefusedError(f"cannot list {location.uri}", error) from error
    return [each for each in found if isinstance(each, ObjectInfo) and not each.key.endswith("/")]


def relative_path(key: str, prefix: str) -> str:
    """Return the path of an object in its channel: its key without the folder that the prefix selects.

    A prefix that is a whole folder name, with or without the final slash, is removed from the key. Of any
    other prefix, only the part up to its last slash is removed. The prefixes `data/train/`, `data/train` and
    `data/train/a` therefore all shorten the key `data/train/a.csv` to `a.csv`.
    """
    rest = key.removeprefix(prefix)
    if prefix.endswith("/") or not prefix:
        return rest
    if rest.startswith("/"):
        return rest[1:]
    return key[prefix.rfind("/") + 1 :]


def read_manifest(location: S3Location, objects: ObjectStore) -> list[ChannelFile]:
    """Return the files that a manifest lists.

    The manifest is a JSON list, such as `[{"prefix": "s3://..."}, "path", ...]`. Each entry after the first is
    a key without the prefix.

    Raises:
        InputDataError: The manifest is missing or malformed, or a listed object is missing.
        S3RefusedError: S3 rejects the request that checks a listed object.
    """
    entries = _manifest_entries(location, objects)
    prefix = S3Location.parse(entries[0]["prefix"])
    files = []
    for entry in entries[1:]:
        if not isinstance(entry, str) or not entry:
            raise InputDataError(
                f"manifest {location.uri} has {entry!r} as an entry, but every entry after the first must be a "
                "non-empty string: the part of an object's URI that follows the prefix in the first entry"
            )
        key = prefix.key + entry
        try:
            objects.head(prefix.bucket, key)
        except S3Error as error:
            named = f"manifest {location.uri} names s3://{prefix.bucket}/{key}"
            if error.status == HTTPStatus.NOT_FOUND:
                raise InputDataError(f"{named}, which does not exist") from error
            raise S3RefusedError(f"{named}, but S3 rejected the request for it", error) from error
        files.append(ChannelFile(bucket=prefix.bucket, key=key, path=entry.lstrip("/")))
    return files


def _manifest_entries(location: S3Location, objects: ObjectStore) -> list[Any]:
    entries = read_json(location, objects)
    if not (
        isinstance(entries, list)
        and entries
        and isinstance(entries[0], dict)
        and isinstance(entries[0].get("prefix"), str)
    ):
        raise InputDataError(
            f'manifest {location.uri} must be a JSON list that begins with {{"prefix": "s3://..."}}'
        )
    return entries


def read_json(location: S3Location, objects: ObjectStore) -> Any:
    """Return the JSON value stored at the location.

    Raises:
        InputDataError: The object is missing, cannot be read, or is not JSON.
    """
    try:
        return json.loads(read_bytes(location, objects))
    except ValueError as error:
        raise InputDataError(f"{location.uri} is not JSON: {error}") from error


def read_bytes(location: S3Location, objects: ObjectStore) -> bytes:
    """Return the bytes stored at the location.

    Raises:
        S3RefusedError: The object is missing, or S3 rejects the request.
    """
    try:
        with objects.open(location.bucket, location.key) as file:
            return file.read()
    except S3Error as error:
        raise S3RefusedError(f"cannot read {location.uri}", error) from error


def check_paths(files: Iterable[ChannelFile]) -> None:
    """Check that the files fit into one folder.

    Raises:
        InputDataError: A path leaves the folder, occurs twice, is both file and folder, or is not a valid file name.
    """
    paths: set[str] = set()
    parents: dict[str, str] = {}
    for file in files:
        path = PurePosixPath(file.path)
        if path.is_absolute() or ".." in path.parts or not file.path:
            raise InputDataError(
                f"s3://{file.bucket}/{file.key} would become {file.path!r}, outside the folder that receives it; "
                "rename the object"
            )
        if "\0" in file.path or any(len(part.encode()) > MAX_NAME_BYTES for part in path.parts):
            raise InputDataError(
                f"the key {file.key!r} in s3://{file.bucket} cannot become a file: each part of its path may have "
                f"up to {MAX_NAME_BYTES} bytes and no NUL. Rename the object"
            )
        if str(path) in paths:
            raise InputDataError(
                f"s3://{file.bucket}/{file.key} and another object need the same path, {file.path!r}; "
                "rename one of them"
            )
        paths.add(str(path))
        parents |= {str(parent): file.key for parent in path.parents}
    for path_text in sorted(paths & parents.keys()):
        raise InputDataError(
            f"{path_text!r} is both an object and the folder of {parents[path_text]!r}; "
            "one folder cannot hold both. Rename one of them"
        )


def shuffle_seed(channel: Mapping[str, Any]) -> int | None:
    """Return the seed of the channel's ShuffleConfig, or None."""
    seed: int | None = channel.get("ShuffleConfig", {}).get("Seed")
    return seed


def shuffled(items: Sequence[T], *, seed: int | None, epoch: int) -> list[T]:
    """Return the items shuffled for this epoch, or in the given order if there is no seed."""
    order = list(items)
    if seed is not None:
        random.Random(f"{seed}/{epoch}").shuffle(order)  # noqa: S311  (an order, not a secret)
    return order


def files_of_host(
    files: Sequence[T], channel: Mapping[str, Any], *, host: Host, hosts: Sequence[Host]
) -> list[T] | None:
    """Return the share of one instance, or None if the channel is not for its instance group.

    With FullyReplicated every instance receives all files; with ShardedByS3Key each of n instances receives every n-th
    file. `files` can also be the lines of an augmented manifest.
    """
    source = s3_source(channel)
    groups = source.get("InstanceGroupNames")
    members = [each for each in hosts if groups is None or each.group in groups]
    if host not in members:
        return None
    if source.get("S3DataDistributionType", "FullyReplicated") == "FullyReplicated":
        return list(files)
    return list(files[members.index(host) :: len(members)])
