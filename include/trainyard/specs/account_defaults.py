"""`AccountDefaults`: an account's default settings for all jobs, merged into each spec before it is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from trainyard.catalog.instances import catalogue
from trainyard.errors import SpecError
from trainyard.specs.automl_job import AutoMLJobSpec
from trainyard.specs.processing_job import ProcessingJobSpec
from trainyard.specs.reading import FromMapping
from trainyard.specs.training_job import TrainingJobSpec
from trainyard.specs.training_job_rules import missing_network

if TYPE_CHECKING:
    from collections.abc import Iterator

Spec = TypeVar("Spec", bound=TrainingJobSpec | ProcessingJobSpec | AutoMLJobSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountDefaults(FromMapping):
    """Values for the settings that a job does not set. The names are those of the specs.

    Tags and environment are merged; the job's values take precedence. The volume key is left out if an instance type of
    the job has local NVMe storage, which accepts no key. An AutoML job has no environment and no network isolation.
    """

    subnets: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    volume_kms_key: str | None = None
    output_kms_key: str | None = None
    enable_network_isolation: bool = False
    encrypt_inter_container_traffic: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the network is complete.

        Raises:
            SpecError: there are subnets without security groups, or security groups without subnets.
        """
        if bool(self.subnets) != bool(self.security_group_ids):
            half = missing_network(self.subnets, self.security_group_ids)
            raise SpecError(half, subject="job_defaults")

    def changes_to(self, spec: Spec) -> dict[str, Any]:
        """Return the fields of a job's spec that the defaults set or extend, with their new values."""
        known = {each.name for each in fields(spec)}
        changes: dict[str, Any] = {}
        for each in fields(self):
            default, own = getattr(self, each.name), getattr(spec, each.name, None)
            if not default or each.name not in known:
                continue
            if isinstance(default, Mapping):
                changes[each.name] = {**default, **(own or {})}
            elif not own:
                changes[each.name] = default
        if any(map(has_local_storage, instance_types(spec))):
            changes.pop("volume_kms_key", None)
        return changes


def instance_types(spec: TrainingJobSpec | ProcessingJobSpec | AutoMLJobSpec) -> list[str]:
    """Return the instance types that a job may run on."""
    return list(_instance_types(spec))


def _instance_types(spec: TrainingJobSpec | ProcessingJobSpec | AutoMLJobSpec) -> Iterator[str]:
    for name in ("instance_type", "candidate_instance_type"):
        if given := getattr(spec, name, None):
            yield given
    for name in ("instance_groups", "instance_preferences", "capacity_ladder"):
        for each in getattr(spec, name, ()):
            yield each.instance_type


def has_local_storage(instance_type: str) -> bool:
    """Return whether a type has local NVMe disks, which accept no volume key."""
    known = catalogue().types.get(instance_type)
    return known is not None and known.has_local_storage
