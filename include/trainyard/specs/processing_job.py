"""`ProcessingJobSpec`: one processing job, with the argument names of the SDK's processors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from trainyard.catalog.instances import catalogue, volume_findings
from trainyard.errors import Finding, SpecError, not_an_s3_uri
from trainyard.specs.limits import MONEY_FIELDS, STOP_RESERVE_S, number_findings
from trainyard.specs.reading import FromMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingInput:
    """One input of a processing job: an S3 prefix placed at `destination` in the container."""

    source: str
    destination: str
    input_name: str
    s3_data_type: str = "S3Prefix"
    s3_input_mode: str = "File"
    s3_data_distribution_type: str = "FullyReplicated"
    s3_compression_type: str = "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingOutput:
    """One output: the container's folder `source`, uploaded to the S3 prefix `destination`."""

    source: str
    destination: str
    output_name: str
    s3_upload_mode: str = "EndOfJob"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingJobSpec(FromMapping):
    """One processing job, with the argument names of the SDK's `ScriptProcessor`.

    Attributes:
        command: the command in the container, for example `("python3",)`; the entry point is appended.
        entry_point: the script's path in the source folder.
        source_dir: the source folder, or the S3 URI of its sourcedir.tar.gz; mounted as input `code`.
        code_location: S3 prefix for the upload of the source folder; None = a prefix in the connection's bucket.
        max_cost_usd, stop_reserve_s: cost cap as in a training job. The amount left under the cap limits `max_run`.
    """

    role: str
    instance_type: str
    instance_count: int = 1
    image_uri: str | None = None
    framework: str = "pytorch"
    framework_version: str | None = None
    py_version: str | None = None
    command: tuple[str, ...] = ("python3",)
    entry_point: str | None = None
    source_dir: str | None = None
    code_location: str | None = None
    arguments: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    inputs: tuple[ProcessingInput, ...] = ()
    outputs: tuple[ProcessingOutput, ...] = ()
    volume_size: int = 30
    volume_kms_key: str | None = None
    output_kms_key: str | None = None
    max_run: int = 86400
    max_cost_usd: float | None = None
    stop_reserve_s: int = STOP_RESERVE_S
    environment: Mapping[str, str] = field(default_factory=dict)
    subnets: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    enable_network_isolation: bool = False
    encrypt_inter_container_traffic: bool = False
    experiment_config: Mapping[str, Any] | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    raw_request_overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the fields of the job.

        Raises:
            SpecError: the instance type has local storage, and `volume_kms_key` is set or `volume_size` is larger
                than the local disks; `code_location` is not an S3 URI; or the cost cap is out of range.
        """
        if findings := list(chain.from_iterable(self.checks())):
            raise SpecError(findings, subject="processing job")

    def checks(self) -> Iterator[Iterable[Finding]]:
        """Yield the findings of each rule, as one lazy iterable per rule."""
        yield _code_location(self)
        for name in MONEY_FIELDS:
            yield number_findings(self, only=(name,))
        yield _volume_key(self)
        yield _volume(self)


def _code_location(spec: ProcessingJobSpec) -> Iterator[Finding]:
    if spec.code_location is not None and not spec.code_location.startswith("s3://"):
        yield not_an_s3_uri("code_location", spec.code_location)


def _volume_key(spec: ProcessingJobSpec) -> Iterator[Finding]:
    known = catalogue().types.get(spec.instance_type)
    if spec.volume_kms_key and known is not None and known.has_local_storage:
        yield Finding(
            where="volume_kms_key",
            what="is not supported by instance types with local storage",
            got=spec.instance_type,
            next_step="remove volume_kms_key, or choose an instance type with EBS storage",
        )


def _volume(spec: ProcessingJobSpec) -> Iterator[Finding]:
    yield from volume_findings(spec.volume_size, spec.instance_type, where="volume_size")
