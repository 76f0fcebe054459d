"""Emulated accelerators of an instance type: their number, from which launchers derive the number of ranks.

AWS's toolkit counts the lines of `nvidia-smi --list-gpus`. A job can request a program of that name, which prints one
line per accelerator of the instance type. Each host then starts as many ranks as on AWS, all of them on the CPU. The
numbers are those of AWS's page on accelerated computing instances, as of 2026-11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VARIABLE = "TRAINYARD_PRESENT_ACCELERATORS"
"""Set this to 1 in a training job's Environment to request emulated accelerators. AWS passes it on and ignores it."""
INSIDE = "/opt/accelerators"

_EIGHT = (
    *("p3.16xlarge", "p3dn.24xlarge", "p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge"),
    *("p5e.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "g4dn.metal", "g5.48xlarge"),
    *("g6.48xlarge", "g6e.48xlarge", "p2.8xlarge"),
)
_FOUR = (
    *("p3.8xlarge", "g4dn.12xlarge", "g5.12xlarge", "g5.24xlarge", "g6.12xlarge", "g6.24xlarge"),
    *("g6e.12xlarge", "g6e.24xlarge"),
)
_ONE_EACH = ("p3.2xlarge", "p2.xlarge", "p5.4xlarge")
_ONE_FAMILIES = ("g4dn", "g5", "g6", "g6e")
_TABLE: Mapping[str, int] = {
    **{f"ml.{each}": 8 for each in _EIGHT},
    **{f"ml.{each}": 4 for each in _FOUR},
    **{f"ml.{each}": 1 for each in _ONE_EACH},
    "ml.p2.16xlarge": 16,
}

_PROGRAM = """#!/bin/sh
# Stand-in of the local engine: lists the accelerators of the job's instance type, and is nothing else.
case "$1" in
  --list-gpus|-L) ;;
  *) echo "no NVIDIA driver: the local engine presents the number of accelerators only" >&2; exit 9 ;;
esac
i=0
while [ "$i" -lt {count} ]; do
  echo "GPU $i: a CPU in place of an accelerator of {instance_type} (UUID: GPU-$i)"
  i=$((i + 1))
done
"""


def num_accelerators(instance_type: str) -> int:
    """Return the number of GPUs per host of the type on AWS; 0 for types without GPUs and for unknown types.

    Examples: 8 for ml.p4d.24xlarge, 1 for ml.g5.2xlarge, 0 for ml.m5.large.
    """
    family = instance_type.removeprefix("ml.").partition(".")[0]
    return _TABLE.get(instance_type, 1 if family in _ONE_FAMILIES else 0)


def are_asked_for(environment: Mapping[str, str]) -> bool:
    """Return whether a job's Environment requests emulated accelerators."""
    return environment.get(VARIABLE) == "1"


def present(folder: Path, instance_type: str) -> Path:
    """Write an `nvidia-smi` that lists the type's accelerators; return the folder to mount at `INSIDE`.

    Raises OSError if the disk rejects the write.
    """
    program = folder / "accelerators" / "bin" / "nvidia-smi"
    program.parent.mkdir(parents=True, exist_ok=True)
    count = num_accelerators(instance_type)
    program.write_text(_PROGRAM.format(count=count, instance_type=instance_type), "utf-8")
    program.chmod(0o755)
    return program.parents[1]


def absence(instance_type: str) -> str:
    """Return the log line for a host whose accelerators are not emulated."""
    return (
        f"{instance_type} has {num_accelerators(instance_type)} accelerator(s) on AWS; this engine emulates none: "
        f"SM_NUM_GPUS is 0 and launchers start one rank per host. Set {VARIABLE}=1 in Environment to start as many "
        "ranks as on AWS"
    )
