"""Catalogue of instance types, from the dated data file beside this module or from the file in `TRAINYARD_PRICES`."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.errors import ContractError, Finding, Severity, SpecError, did_you_mean, near_matches

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DATA_FILE = Path(__file__).parent / "training_instances.csv"
PRICES_VARIABLE = "TRAINYARD_PRICES"
"""Environment variable with the path of another data file, such as one written by `trainyard prices --refresh`."""
_MEMBERS = ("date", "region", "source")
_NEURON_CORES = {"AWS Trainium": 2, "AWS Trainium2": 4}
"""Logical NeuronCores per device. Each has a rank (`num_neurons` of AWS's toolkit, sagemaker-training 5.1.4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """One instance type: its hardware and its on-demand training price.

    Attributes:
        num_accelerators: GPUs or Trainium devices; 0 on a CPU instance.
        accelerator_memory_gib: memory per accelerator.
        has_efa: whether the ranks of several instances can use EFA.
        has_local_storage: whether its storage is local NVMe disks, which cannot be encrypted with
            `volume_kms_key`.
        local_storage_gb: total size of its disks in GB, which is also the largest allowed volume size; None
            without disks or if unknown.
        is_for_processing: whether processing jobs may use it, too.
        is_retired: whether EC2 no longer lists the type. Its capacity may end.
        price_usd_per_hour: price of one instance; None if it is unknown.
    """

    name: str
    vcpus: int
    memory_gib: float
    num_accelerators: int
    accelerator: str
    accelerator_memory_gib: float
    has_efa: bool
    has_local_storage: bool
    local_storage_gb: int | None
    is_for_processing: bool
    is_retired: bool
    price_usd_per_hour: float | None

    @property
    def is_trainium(self) -> bool:
        """True if the accelerators are Trainium devices."""
        return self.accelerator in _NEURON_CORES

    @property
    def num_ranks(self) -> int:
        """Ranks that SageMaker's toolkit starts: one per GPU or logical NeuronCore, one on a CPU type.

        Worked: 16 Trainium devices of 2 cores have 32 ranks.
        """
        return max(1, self.num_accelerators * _NEURON_CORES.get(self.accelerator, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All instance types of the data file, with the date, region and source of its prices."""

    types: Mapping[str, InstanceType]
    date: str
    region: str
    source: str

    def find(self, name: str, *, where: str = "instance_type") -> InstanceType:
        """Return the instance type with this name.

        Raises:
            SpecError: there is no such type; the message names the most similar ones.
        """
        if name in self.types:
            return self.types[name]
        near = near_matches(name, self.types)
        raise SpecError(
            Finding(
                where=where,
                what="is not a training instance type of the catalogue",
                got=repr(name),
                allowed=f"one of the {len(self.types)} types in {data_file()}",
                next_step=did_you_mean(near),
            )
        )


def region_findings(region: str) -> Iterator[Finding]:
    """Yield a warning if the catalogue's prices are for another region."""
    table = catalogue()
    if table.region != region:
        yield Finding(
            where="prices",
            what="are for another region than the run, so all costs and cost limits of the run are estimates",
            got=f"prices for {table.region} of {table.date}, and a run in {region}",
            next_step=f"run 'trainyard prices --refresh --region {region}', and set {PRICES_VARIABLE} "
            "to the file that this command writes",
            severity=Severity.WARNING,
        )


def ranks_on(instance_type: str) -> int:
    """Return the number of ranks that SageMaker's toolkit starts on one instance; 1 for an unknown type."""
    known = catalogue().types.get(instance_type)
    return known.num_ranks if known else 1


def first_accelerated(instance_types: Sequence[str]) -> str | None:
    """Return the first type with accelerators; if no type has any, the first type. None without types.

    The returned type determines the image that all instance groups of a job share. As with the SDK's estimator,
    a job with accelerators in any group therefore gets an image for accelerators.
    """
    known = catalogue().types
    found = (name for name in instance_types if name in known and known[name].num_accelerators)
    return next(found, next(iter(instance_types), None))


def largest_volume_gb(volume_gb: int, instance_type: str) -> int:
    """Return `volume_gb`, limited to the size of the type's local disks: the service accepts no larger volume."""
    known = catalogue().types.get(instance_type)
    disks_gb = known.local_storage_gb if known else None
    return volume_gb if disks_gb is None else min(volume_gb, disks_gb)


def volume_findings(volume_gb: int, instance_type: str, *, where: str) -> Iterator[Finding]:
    """Yield an error if a volume is larger than the local disks of the type: the service rejects it."""
    largest_gb = largest_volume_gb(volume_gb, instance_type)
    if volume_gb > largest_gb:
        yield Finding(
            where=where,
            what="is larger than the instance type's local disks, which the job uses instead of an EBS volume",
            got=f"{volume_gb} GB on {instance_type}",
            allowed=f"at most {largest_gb} GB",
            next_step="lower it, or choose a type with larger local disks or with an EBS volume",
            source="API reference, ProcessingClusterConfig and HyperParameterTuningResourceConfig",
        )


def data_file() -> Path:
    """Return the path of the catalogue's data file."""
    return Path(os.environ.get(PRICES_VARIABLE) or DATA_FILE)


def catalogue(path: Path | None = None) -> Catalogue:
    """Return the catalogue in the data file `path`, by default in the file that `data_file` returns.

    Each file is read only once.

    Raises:
        SpecError: the file does not exist.
        ContractError: the file lacks its date, region or source.
    """
    return _read_catalogue(path or data_file())


@cache
def _read_catalogue(path: Path) -> Catalogue:
    if not path.is_file():
        raise SpecError(
            Finding(
                where=PRICES_VARIABLE,
                what="names a file that does not exist",
                got=str(path),
                next_step="correct the variable, or write the file with 'trainyard prices --refresh'",
            )
        )
    lines = path.read_text(encoding="utf-8").splitlines()
    notes = dict(line[1:].strip().split(": ", 1) for line in lines if _is_note(line))
    missing = [name for name in _MEMBERS if name not in notes]
    if missing:
        raise ContractError(
            f"the instance catalogue has no {', '.join(missing)}",
            where=str(path),
            next_step="write the file again with 'trainyard prices --refresh'",
        )
    rows = csv.DictReader(line for line in lines if line and not line.startswith("#"))
    types = {row["instance_type"]: _instance_type(row) for row in rows}
    return Catalogue(types=types, **{name: notes[name] for name in _MEMBERS})


def _is_note(line: str) -> bool:
    return line.startswith("#") and line[1:].strip().split(": ", 1)[0] in _MEMBERS


def _instance_type(row: Mapping[str, str]) -> InstanceType:
    price = row["price_usd_per_hour"]
    return InstanceType(
        name=row["instance_type"],
        vcpus=int(row["vcpus"]),
        memory_gib=float(row["memory_gib"]),
        num_accelerators=int(row["num_accelerators"]),
        accelerator=row["accelerator"],
        accelerator_memory_gib=float(row["accelerator_memory_gib"]),
        has_efa=row["efa"] == "yes",
        has_local_storage=row["local_storage"] == "yes",
        local_storage_gb=int(row["local_storage_gb"]) if row["local_storage_gb"] else None,
        is_for_processing=row["processing"] == "yes",
        is_retired=row.get("retired") == "yes",  # a file of an earlier release has no such column
        price_usd_per_hour=float(price) if price else None,
    )
