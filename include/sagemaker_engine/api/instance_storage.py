"""Rules for instance types with local NVMe disks: no VolumeKmsKeyId, and no VolumeSizeInGB above the disks' size.

Sources: TotalSizeInGB of EC2's DescribeInstanceTypes, November 2026, for the types of botocore's TrainingInstanceType
and ProcessingInstanceType; botocore's documentation of ProcessingClusterConfig and HyperParameterTuningResourceConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOCAL_STORAGE_GB: Mapping[str, Mapping[str, int | None]] = {
    "g4dn": {
        "xlarge": 125,
        "2xlarge": 225,
        "4xlarge": 225,
        "8xlarge": 900,
        "12xlarge": 900,
        "16xlarge": 900,
    },
    "g5": {
        "xlarge": 250,
        "2xlarge": 450,
        "4xlarge": 600,
        "8xlarge": 900,
        "16xlarge": 1900,
        "12xlarge": 3800,
        "24xlarge": 3800,
        "48xlarge": 7600,
    },
    "r5d": {
        "large": 75,
        "xlarge": 150,
        "2xlarge": 300,
        "4xlarge": 600,
        "8xlarge": 1200,
        "12xlarge": 1800,
        "16xlarge": 2400,
        "24xlarge": 3600,
    },
    "g6": {
        "xlarge": 250,
        "2xlarge": 450,
        "4xlarge": 600,
        "8xlarge": 900,
        "12xlarge": 3760,
        "16xlarge": 1880,
        "24xlarge": 3760,
        "48xlarge": 7520,
    },
    "g6e": {
        "xlarge": 250,
        "2xlarge": 450,
        "4xlarge": 600,
        "8xlarge": 900,
        "12xlarge": 3800,
        "16xlarge": 1900,
        "24xlarge": 3800,
        "48xlarge": 7600,
    },
    "p5": {"4xlarge": 3800, "48xlarge": 30400},
    "g7e": {
        "2xlarge": 1900,
        "4xlarge": 1900,
        "8xlarge": 1900,
        "12xlarge": 3800,
        "24xlarge": 7600,
        "48xlarge": 15200,
    },
    "g7": {
        "2xlarge": 440,
        "4xlarge": 875,
        "8xlarge": 930,
        "12xlarge": 1900,
        "24xlarge": 3800,
        "48xlarge": 7600,
    },
    "p3dn": {"24xlarge": 1800},
    "p4d": {"24xlarge": 8000},
    "p4de": {"24xlarge": 8000},
    "p5e": {"48xlarge": 30400},
    "p5en": {"48xlarge": 30400},
    "trn1": {"2xlarge": 474, "32xlarge": 7600},
    "trn1n": {"32xlarge": 7600},
    "trn2": {"48xlarge": 7600},
    "p6-b200": {"48xlarge": 30400},
    "p6-b300": {"48xlarge": 30400},
    "p6e-gb200": {"36xlarge": None},
}
"""Family -> size -> GB of all disks; None if no source states it."""


def has_local_storage(instance_type: str) -> bool:
    """Return whether an instance type such as ml.g5.xlarge has NVMe disks."""
    return _family_and_size(instance_type)[0] in LOCAL_STORAGE_GB


def local_storage_gb(instance_type: str) -> int | None:
    """Return the size in GB of a type's NVMe disks; None if it has no such disks, or if their size is unknown."""
    family, size = _family_and_size(instance_type)
    return LOCAL_STORAGE_GB.get(family, {}).get(size)


def storage_problems(resources: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors in VolumeKmsKeyId and VolumeSizeInGB if an instance type has NVMe disks.

    `resources` is a ResourceConfig, ClusterConfig or HyperParameterTuningResourceConfig.
    """
    places = [resources]
    for member in ("InstanceGroups", "InstancePreferences", "InstanceConfigs"):
        places += resources.get(member) or []
    size = resources.get("VolumeSizeInGB", 0)
    local = [
        (each["InstanceType"], each.get("VolumeSizeInGB", size))
        for each in places
        if has_local_storage(each.get("InstanceType") or "")
    ]
    if local and resources.get("VolumeKmsKeyId"):
        yield (
            "You can't request a VolumeKmsKeyId when using an instance type with local storage "
            f"({', '.join(name for name, _ in local)})."
        )
    above = [
        f"{name}: {disks} GB"
        for name, wanted in local
        if (disks := local_storage_gb(name)) is not None and wanted > disks
    ]
    if above:
        yield (
            "You can't request a VolumeSizeInGB greater than the total size of the local instance storage "
            f"({', '.join(above)})."
        )


def _family_and_size(instance_type: str) -> tuple[str, str]:
    family, _, size = instance_type.removeprefix("ml.").partition(".")
    return family, size
