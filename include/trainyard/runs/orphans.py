"""Paid things that a deployment may stop, because no live run of its own owns them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from trainyard.runs.run_tags import DEPLOYMENT, KEEP, Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class ThingKind(StrEnum):
    """The kinds of thing that are looked for."""

    TRAINING = "training job"
    PROCESSING = "processing job"
    TUNING = "tuning job"
    AUTOML = "AutoML job"
    ENDPOINT = "endpoint"
    WARM_POOL = "warm pool"


class OrphanVerdict(StrEnum):
    """Decision about a thing, with its reason."""

    ORPHAN = "no live run owns it"
    FOREIGN = "not tagged as this deployment's"
    UNTRACED = "tagged as ours, but not with its run"
    KEPT = "tagged to be kept"
    YOUNG = "younger than the grace time"
    OWNED = "its run is under way"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidThing:
    """Something that costs money now.

    Attributes:
        name: the job's or the endpoint's; a warm pool bears the name of the training job that left it.
        since: when it began to be what it is, epoch seconds: a job its creation, a warm pool its job's end.
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
    """Return what to do with a thing: stop it only if it is an `ORPHAN`.

    Args:
        thing: the thing.
        deployment: the name of this deployment; a thing of any other is never an orphan.
        now: epoch seconds.
        grace_s: a thing that exists for less is left alone.
        is_live: whether the owner's DAG run is queued or running; asked last, and only about things of ours.
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
