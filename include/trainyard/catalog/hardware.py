"""Compute and communication speed of the instance types with NVIDIA GPUs, from the dated files beside this module."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.catalog.instances import catalogue
from trainyard.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.catalog.instances import InstanceType

ACCELERATORS_FILE = Path(__file__).with_name("accelerators.csv")
NETWORKS_FILE = Path(__file__).with_name("networks.csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Capabilities of one instance type for distributed training.

    Attributes:
        bf16_tflops: dense bf16 peak of one accelerator; None if its hardware has no bf16.
        fp32_tflops: dense fp32 peak of one accelerator, without TF32.
        memory_gb_per_s: bandwidth of the accelerator's memory, 10^9 bytes per second.
        link: link between the accelerators of an instance, NVLink or PCIe.
        link_gb_per_s: bandwidth per accelerator in one direction, 10^9 bytes per second.
        efficiency: share of the peak that a large decoder's matrix products reach.
        network_gbps: bandwidth of the whole instance, 10^9 bits per second.
    """

    instance: InstanceType
    bf16_tflops: float | None
    fp32_tflops: float
    memory_gb_per_s: float
    link: str
    link_gb_per_s: float
    efficiency: float
    network_gbps: float

    def peak_tflops(self, precision: str) -> float | None:
        """Return the peak of one accelerator at `bf16` or `fp32`; None if the hardware lacks it."""
        return self.fp32_tflops if precision == "fp32" else self.bf16_tflops


@cache
def hardware() -> Mapping[str, Hardware]:
    """Return the hardware of each instance type with NVIDIA accelerators, by the type's name (read once).

    Raises:
        ContractError: the files have no row for the accelerator or the network of a type in the catalogue.
    """
    accelerators, networks = _rows(ACCELERATORS_FILE), _rows(NETWORKS_FILE)
    return {
        each.name: _hardware(each, accelerators, networks)
        for each in catalogue().types.values()
        if each.accelerator.startswith("NVIDIA")
    }


def has_bf16(instance_type: str) -> bool:
    """Return whether the type has NVIDIA GPUs with bf16 in their hardware; False for an unknown type."""
    known = hardware().get(instance_type)
    return known is not None and known.bf16_tflops is not None


def speeds_date() -> str:
    """Return the date that is stated in the accelerators file."""
    lines = ACCELERATORS_FILE.read_text(encoding="utf-8").splitlines()
    return next(line.partition("date: ")[2] for line in lines if line.startswith("# date: "))


def _hardware(
    each: InstanceType,
    accelerators: Mapping[str, Mapping[str, str]],
    networks: Mapping[str, Mapping[str, str]],
) -> Hardware:
    try:
        row, network = accelerators[each.accelerator], networks[each.name]
    except KeyError as error:
        raise ContractError(
            f"the hardware tables have no row for {error.args[0]}",
            where=str(ACCELERATORS_FILE.parent),
            next_step=f"add the row: accelerators are in {ACCELERATORS_FILE.name}, instance types in "
            f"{NETWORKS_FILE.name}",
        ) from error
    return Hardware(
        instance=each,
        bf16_tflops=float(row["bf16_tflops"]) if row["bf16_tflops"] else None,
        fp32_tflops=float(row["fp32_tflops"]),
        memory_gb_per_s=float(row["memory_gb_per_s"]),
        link=row["link"],
        link_gb_per_s=float(row["link_gb_per_s"]),
        efficiency=float(row["efficiency"]),
        network_gbps=float(network["network_gbps"]),
    )


def _rows(path: Path) -> dict[str, dict[str, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if line and not line.startswith("#"))
    return {next(iter(row.values())): row for row in rows}
