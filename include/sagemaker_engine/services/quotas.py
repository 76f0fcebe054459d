"""Account quotas per region: instances by type and use, and the longest training run.

AWS sets many quotas per account. The defaults here suit an account that trains on CPUs and has requested few
accelerators. PUT /_engine/quotas changes them (docs/faults.md).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from sagemaker_engine.plans.use import plan_arn_of
from sagemaker_engine.state.jobs import RUNNING_STATUSES, JobQuery, ResourceKind
from sagemaker_engine.state.whole_file import write_whole
from sagemaker_engine.wire.errors import ServiceError
from sagemaker_engine.wire.model import load_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from sagemaker_engine.state.store import JobStore

LONGEST_RUN = "Longest run time for a training job"
LONGEST_RUN_S = 432_000
ANY_REGION = "*"
_USES = {
    "TrainingInstanceType": (
        "training job usage",
        "spot training job usage",
        "training warm pool usage",
    ),
    "ProcessingInstanceType": ("processing job usage",),
}
_CPU_FAMILIES = ("c", "m", "r", "t3")
_CPU_INSTANCES = 30
_SMALL_GPU = {"g4dn", "g5", "g6"}
_SMALL_GPU_SIZES = {"xlarge", "2xlarge", "4xlarge"}
_SMALL_GPU_INSTANCES = {"training job usage": 2, "processing job usage": 1}


class QuotaError(ValueError):
    """A malformed document of quotas; the message states the field, its value and the allowed values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One quota; `unit` is `Instances` or `Seconds`."""

    name: str
    value: float
    default: float = 0
    unit: str = "Instances"

    @property
    def code(self) -> str:
        """Return a code in AWS's format. It is not AWS's own code of this quota."""
        return f"L-{hashlib.sha256(self.name.encode()).hexdigest()[:8].upper()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The quotas of an engine's account; changed values are stored in a file of its state folder."""

    path: Path
    lock: threading.RLock = field(default_factory=threading.RLock)

    def changed(self) -> dict[str, dict[str, float]]:
        """Return the changed values by region, then by quota.

        An outer key is a region, or `*` for all regions. An inner key is the name of a quota, or a glob over names.
        """
        try:
            found: dict[str, dict[str, float]] = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def change(self, document: object) -> None:
        """Replace the values of all earlier changes by those in `document`; an empty mapping restores all defaults.

        Raises:
            QuotaError: The document is malformed, or a name or glob matches no quota.
        """
        changed = _checked(document)
        with self.lock:
            write_whole(self.path, json.dumps(changed))

    def all(self, region: str) -> list[Quota]:
        """Return all quotas of a region, by name."""
        changed = self.changed()
        return [_quota(name, changed, region) for name in _names()]

    @contextmanager
    def room_for(
        self, store: JobStore, kind: ResourceKind, request: Mapping[str, Any], region: str
    ) -> Iterator[None]:
        """Check that the quotas allow a job in addition to the running ones. Store the job inside the `with` block.

        No other job is checked until the block ends, so that two jobs together cannot exceed a quota.

        Raises:
            ServiceError: ResourceLimitExceeded, in the service's wording.
        """
        with self.lock:
            changed = self.changed()
            used = self._used(store, kind, region)
            for name, count in instances(kind, request).items():
                quota = _quota(name, changed, region)
                if used[name] + count > quota.value:
                    raise ServiceError(*over(quota, used=used[name], delta=count))
            if kind is ResourceKind.TRAINING:
                longest = _quota(LONGEST_RUN, changed, region)
                seconds = request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", 0)
                if seconds > longest.value:
                    raise ServiceError(*over(longest, used=0, delta=seconds))
            yield

    def _used(self, store: JobStore, kind: ResourceKind, region: str) -> Counter[str]:
        used: Counter[str] = Counter()
        for job in store.list(kind, JobQuery(statuses=RUNNING_STATUSES)):
            if job.arn.split(":")[3] == region:
                used.update(instances(kind, job.request))
        return used


def instances(kind: ResourceKind, request: Mapping[str, Any]) -> Counter[str]:
    """Return the number of instances that a job uses, by the name of the quota that limits them.

    If the job has InstancePreferences, the first entry counts. Instances of a training plan are reserved and do
    not count.
    """
    found: Counter[str] = Counter()
    if plan_arn_of(request) is not None:
        return found
    if kind is ResourceKind.PROCESSING:
        places, use = [request["ProcessingResources"]["ClusterConfig"]], "processing job usage"
    else:
        resources = request.get("ResourceConfig", {})
        choices = resources.get("InstancePreferences") or [resources]
        places = resources.get("InstanceGroups") or choices[:1]
        spot = "spot " if request.get("EnableManagedSpotTraining") else ""
        use = f"{spot}training job usage"
    for each in places:
        if "InstanceType" in each:
            found[f"{each['InstanceType']} for {use}"] += each.get("InstanceCount", 1)
    return found


def over(quota: Quota, *, used: float, delta: float) -> tuple[str, str]:
    """Return (code, message) of the service's error for an exceeded quota.

    `used` is the current use and `delta` the use by the rejected job, both in the quota's unit.
    """
    unit = quota.unit
    message = (
        f"The account-level service limit '{quota.name}' is {quota.value:.0f} {unit}, with current utilization of "
        f"{used:.0f} {unit} and a request delta of {delta:.0f} {unit}. Please use AWS Service Quotas to request an "
        "increase for this quota. If AWS Service Quotas is not available, contact AWS support to request an increase "
        "for this quota."
    )
    return "ResourceLimitExceeded", message


def _names() -> list[str]:
    shapes = load_model("sagemaker").shapes
    named = (
        f"{instance_type} for {use}"
        for shape, uses in _USES.items()
        for instance_type in shapes[shape]["enum"]
        for use in uses
    )
    return sorted([LONGEST_RUN, *named])


def _quota(name: str, changed: Mapping[str, Mapping[str, float]], region: str) -> Quota:
    default = _default(name)
    places = (changed.get(region, {}), changed.get(ANY_REGION, {}))
    values = (value for place in places for glob, value in place.items() if fnmatchcase(name, glob))
    unit = "Seconds" if name == LONGEST_RUN else "Instances"
    return Quota(name=name, value=next(values, default), default=default, unit=unit)


def _default(name: str) -> float:
    if name == LONGEST_RUN:
        return LONGEST_RUN_S
    instance_type, _, use = name.partition(" for ")
    _, family, size = instance_type.split(".")
    if use == "training warm pool usage":
        return 0
    if family.startswith(_CPU_FAMILIES):
        return _CPU_INSTANCES
    is_small = family in _SMALL_GPU and size in _SMALL_GPU_SIZES
    return _SMALL_GPU_INSTANCES.get(use, 0) if is_small else 0


def _checked(document: object) -> dict[str, dict[str, float]]:
    if not isinstance(document, dict):
        raise QuotaError(
            f'quotas: got {document!r}; write {{"<region or *>": {{"<name or glob>": <number>}}}}'
        )
    known = _names()
    for region, values in document.items():
        if not isinstance(values, dict):
            raise QuotaError(
                f"quotas.{region}: got {values!r}; write an object that maps a name or glob to a number"
            )
        for glob, value in values.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise QuotaError(
                    f"quotas.{region}.{glob}: got {value!r}; write a number of 0 or more"
                )
            if not any(fnmatchcase(name, glob) for name in known):
                raise QuotaError(
                    f"quotas.{region}.{glob}: matches no quota; names are like 'ml.p5.48xlarge for spot training job "
                    f"usage' and {LONGEST_RUN!r}"
                )
    return document
