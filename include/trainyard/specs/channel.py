"""Data channels of a training job in the SDK's vocabulary: S3, EFS, FSx, and data sets of a hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from trainyard.errors import Finding, SpecError, not_an_s3_uri
from trainyard.specs.reading import read_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingInput:
    """One channel read from S3 (the SDK's `TrainingInput`).

    Attributes:
        s3_data: `s3://bucket/prefix`; the manifest's address if `s3_data_type` is one of the manifest types.
        distribution: `FullyReplicated` or `ShardedByS3Key`.
        compression: `Gzip` if the objects are to be decompressed, otherwise None.
        s3_data_type: `S3Prefix`, `ManifestFile` or `AugmentedManifestFile`.
        input_mode: `File`, `FastFile` or `Pipe`; None = the job's.
        shuffle_seed: seed for shuffling the objects (the SDK's `ShuffleConfig`). Each epoch has another order.
            None = no shuffling.
        instance_groups: the groups of a heterogeneous cluster that get this channel.
    """

    s3_data: str
    distribution: str = "FullyReplicated"
    compression: str | None = None
    content_type: str | None = None
    record_wrapping: str | None = None
    s3_data_type: str = "S3Prefix"
    input_mode: str | None = None
    attribute_names: tuple[str, ...] = ()
    shuffle_seed: int | None = None
    instance_groups: tuple[str, ...] = ()
    model_access_config: Mapping[str, Any] | None = None
    hub_access_config: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Check the fields of the channel.

        Raises:
            SpecError: the address is not an S3 address, or fields contradict each other.
        """
        if findings := list(chain.from_iterable(self.checks())):
            raise SpecError(findings, subject="channel")

    def checks(self) -> Iterator[Iterable[Finding]]:
        """Yield the findings of each rule, as one lazy iterable per rule."""
        yield _address(self)
        yield _attributes(self)


def _address(channel: TrainingInput) -> Iterator[Finding]:
    if not channel.s3_data.startswith("s3://"):
        yield not_an_s3_uri("s3_data", channel.s3_data)


def _attributes(channel: TrainingInput) -> Iterator[Finding]:
    if channel.attribute_names and channel.s3_data_type != "AugmentedManifestFile":
        yield Finding(
            where="attribute_names",
            what="is allowed for s3_data_type AugmentedManifestFile only",
            got=channel.s3_data_type,
            next_step="remove it, or set s3_data_type to AugmentedManifestFile",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystemInput:
    """One channel mounted from EFS or FSx for Lustre; the job then needs a VPC."""

    file_system_id: str
    file_system_type: str
    directory_path: str
    file_system_access_mode: str = "ro"
    content_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInput:
    """One channel read from a data set of a SageMaker hub."""

    dataset_arn: str


Channel = TrainingInput | FileSystemInput | DatasetInput


def read_channel(value: object, *, where: str = "channel") -> Channel:
    """Return a channel from an `s3://` URI, or from the fields of TrainingInput, FileSystemInput or DatasetInput.

    Raises:
        SpecError: the value is not one of these.
    """
    if isinstance(value, (TrainingInput, FileSystemInput, DatasetInput)):
        return value
    if isinstance(value, str):
        return read_spec(TrainingInput, {"s3_data": value}, where=where)
    if isinstance(value, Mapping):
        if "file_system_id" in value:
            return read_spec(FileSystemInput, value, where=where)
        if "dataset_arn" in value:
            return read_spec(DatasetInput, value, where=where)
        return read_spec(TrainingInput, value, where=where)
    raise SpecError(
        Finding(
            where=where,
            what="is not a channel",
            got=repr(value),
            allowed="an s3:// URI or a mapping",
        )
    )
