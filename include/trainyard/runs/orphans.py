"""Orphans: paid resources of a deployment that belong to none of its live runs and may be stopped. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from trainyard.runs.run_tags import DEPLOYMENT, KEEP, Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class ThingKind(StrEnum):
    """Kinds of resources that may be orphans."""

    TRAINING = "training job"
    PROCESSING = "processing job"
    TUNING = "tuning job"
    AUTOML = "AutoML job"
    ENDPOINT = "endpoint"
    WARM_POOL = "warm pool"


class OrphanVerdict(StrEnum):
    """Decision about a resource, with its reason."""

    ORPHAN = "no live run owns it"
    FOREIGN = "not tagged as this deployment's"
    UNTRACED = "tagged with this deployment, but not with a run"
    KEPT = "tagged to be kept"
    YOUNG = "younger than the grace time"
    OWNED = "its run is running"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidThing:
    """A resource that costs money now.

    Attributes:
        name: name of the job or the endpoint; for a warm pool, the name of the training job that left it.
        since: time at which the cost began, epoch seconds. This is the creation of the job or endpoint; for a
            warm pool, it is the end of the training job.
    """

    kind: ThingKind
    name: str
    arn: str
    since: float
    tags: Mapping[str, str]


def judge(
    thing: PaidThing,
    *,
    deployment: str,
    now: float,
    grace_s: float,
    is_live: Callable[[Owner], bool],
) -> OrphanVerdict:
    """Return the verdict on a resource. The resource may be stopped only if the verdict is `ORPHAN`.

    Args:
        thing: the resource.
        deployment: name of this deployment; a resource of another one is never an orphan.
        now: epoch seconds.
        grace_s: a resource younger than this many seconds is never an orphan.
        is_live: whether the owner's DAG run is queued or running; called last, and only for resources of this
            deployment.
    """
    if thing.tags.get(DEPLOYMENT) != deployment:
        return OrphanVerdict.FOREIGN
    if KEEP in thing.tags:
        return OrphanVerdict.KEPT
    owner = Owner.from_tags(thing.tags)
    if owner is None:
        return OrphanVerdict.UNTRACED
    if now - thing.since < grace_s:
        return OrphanVerdict.YOUNG
    return OrphanVerdict.OWNED if is_live(owner) else OrphanVerdict.ORPHAN
