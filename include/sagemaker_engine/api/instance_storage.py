"""Instance types whose storage is local NVMe disks, for which neither VolumeKmsKeyId nor a volume size is allowed.

Source: "Instance store volumes" of the EC2 user guide for the families of botocore's TrainingInstanceType and
ProcessingInstanceType, November 2026.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOCAL_STORAGE_FAMILIES = frozenset(
    {
        *("g4dn", "g5", "g6", "g6e", "g7", "g7e", "r5d"),
        *("p3dn", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "p6e-gb200"),
        *("trn1", "trn1n", "trn2"),
    }
)


def has_local_storage(instance_type: str) -> bool:
    """Return whether an instance type such as ml.g5.xlarge has NVMe disks."""
    return not LOCAL_STORAGE_FAMILIES.isdisjoint(instance_type.split(".")[1:2])


def volume_key_problems(resources: Mapping[str, Any]) -> Iterator[str]:
    """Yield an error if a ResourceConfig or ClusterConfig has a volume key and a type with local storage."""
    if not resources.get("VolumeKmsKeyId"):
        return
    places = [resources]
    for member in ("InstanceGroups", "InstancePreferences", "InstanceConfigs"):
        places += resources.get(member) or []
    types = [str(each["InstanceType"]) for each in places if "InstanceType" in each]
    local = [each for each in types if has_local_storage(each)]
    if local:
        yield (
            "You can't request a VolumeKmsKeyId when using an instance type with local storage "
            f"({', '.join(local)})."
        )
