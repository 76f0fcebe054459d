"""How many slots of a pool sized in instances a run's training takes, and its search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from include.specs.run_conf import RunConf


def pool_slots(conf: Mapping[str, Any], *, most: int) -> int:
    """Return the most instances that the training of a run with these params has on any rung, from 1 to `most`.

    The scheduler asks, so a conf that preflight will refuse is no error here. A training with more instances than the
    pool has slots takes all of them: with more it would never start.

    Args:
        conf: a DAG run's conf as its author wrote it; what it leaves out has the default.
        most: the slots of the pool.
    """
    own = _count(conf.get("instance_count"), absent=RunConf().instance_count)
    ladder = conf.get("capacity_ladder")
    rungs = (
        [each for each in ladder if isinstance(each, Mapping)] if isinstance(ladder, list) else []
    )
    counts = [_count(each.get("instance_count"), absent=own) for each in rungs] or [own]
    return max(1, min(most, max(counts)))


def search_slots(conf: Mapping[str, Any], *, most: int) -> int:
    """Return the most instances that the trials of a run's search have at a time, from 1 to `most`.

    Args:
        conf: a DAG run's conf as its author wrote it, as for `pool_slots`.
        most: the slots of the pool.
    """
    at_once = _count(
        conf.get("tuning_max_parallel_jobs"), absent=RunConf().tuning_max_parallel_jobs
    )
    return max(1, min(most, max(1, at_once) * trial_slots(conf, most=most)))


def trial_slots(conf: Mapping[str, Any], *, most: int) -> int:
    """Return the instances that one trial of a run's search has, from 1 to `most`; see `search_slots`."""
    own = _count(conf.get("tuning_instance_count"), absent=0)
    return max(1, min(most, own)) if own > 0 else pool_slots(conf, most=most)


def _count(value: object, *, absent: int) -> int:
    try:
        return int(str(value))
    except ValueError:
        return absent
