"""`ProcessingJobSpec`: one processing job, with the argument names of the SDK's processors."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass, field
from typing import Any, Self

from trainyard.catalog.instances import catalogue, volume_findings
from trainyard.errors import Finding, SpecError, not_an_s3_uri
from trainyard.specs.limits import MONEY_FIELDS, STOP_RESERVE_S, number_findings
from trainyard.specs.reading import read_spec


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
class ProcessingJobSpec:
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
            SpecError: a volume key, or a volume larger than the local disks, is set for an instance type with local
                storage; `code_location` is not an S3 URI; or the cost cap is out of range.
        """
        if self.code_location is not None and not self.code_location.startswith("s3://"):
            place = not_an_s3_uri("code_location", self.code_location)
            raise SpecError([place], subject="processing job")
        if findings := list(number_findings(self, only=MONEY_FIELDS)):
            raise SpecError(findings, subject="processing job")
        known = catalogue().types.get(self.instance_type)
        if self.volume_kms_key and known is not None and known.has_local_storage:
            wrong = Finding(
                where="volume_kms_key",
                what="is not supported by instance types with local storage",
                got=self.instance_type,
                next_step="remove volume_kms_key, or choose an instance type with EBS storage",
            )
            raise SpecError([wrong], subject="processing job")
        if findings := list(
            volume_findings(self.volume_size, self.instance_type, where="volume_size")
        ):
            raise SpecError(findings, subject="processing job")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, where: str = "") -> Self:
        """Build the spec from plain data.

        Raises:
            SpecError: unknown keys or wrong types; the error lists all of them, and the nearest known keys.
        """
        return read_spec(cls, mapping, where=where)
