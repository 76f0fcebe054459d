"""Number of slots that a run's training and its search take of a pool sized in instances."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, assert_never

from trainyard.catalog.instances import ranks_on
from trainyard.specs.comparison_conf import Comparison
from trainyard.specs.run_conf import RunConf

_REFERENCE = re.compile(
    r"\{\{\s*(?:params|dag_run\.conf)(?:\.(\w+)|\[\s*['\"](\w+)['\"]\s*\])\s*\}\}"
)
_OF_THE_RUN = {"instance_count": "instance_count", "capacity_ladder": "capacity_ladder"}
_OF_THE_SEARCH = {"max_parallel_jobs": "tuning_max_parallel_jobs"}


class PoolDemand(StrEnum):
    """The kinds of task that take training instances.

    Each value is also the operator's name in the UI: the one attribute of an operator class that Airflow stores with
    a task, mapped or not, and that a subclass inherits. The scheduler, which never imports the class, reads it there.
    """

    TRAINING = "SageMaker training"
    SEARCH = "SageMaker search"
    TRIAL = "SageMaker trial"
    CELL = "SageMaker comparison cell"

    def slots(self, conf: Mapping[str, Any], *, most: int) -> int:
        """Return the slots that a task of this kind takes in a run with this conf, from 1 to `most`."""
        match self:
            case PoolDemand.TRAINING:
                return pool_slots(conf, most=most)
            case PoolDemand.SEARCH:
                return search_slots(conf, most=most)
            case PoolDemand.TRIAL:
                return trial_slots(conf, most=most)
            case PoolDemand.CELL:
                return cell_slots(conf, most=most)
            case _:
                assert_never(self)


def conf_with_spec(spec: object, conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conf of a run with what the spec of its job decides: instances, capacity ladder, trials at a time.

    The scheduler renders no template. A reference to one param or one value of the conf is looked up; for any other
    template the conf decides, as for a spec that is a function or leaves the instances out.

    Args:
        spec: of a training or a search as the DAG's author wrote it.
        conf: of the run, over the defaults of the DAG's params.
    """
    if not isinstance(spec, Mapping):
        return dict(conf)
    if isinstance(spec.get("training"), Mapping):
        of_search = {"tuning_instance_count": 0, **_read(spec, _OF_THE_SEARCH, conf)}
        return {**conf_with_spec(spec["training"], conf), **of_search}
    read = _read(spec, _OF_THE_RUN, conf)
    groups = [each for each in _list(spec.get("instance_groups")) if isinstance(each, Mapping)]
    counts = [_referred(each.get("instance_count"), conf) for each in groups]
    of_groups = {"instance_count": sum(_count(each, absent=1) for each in counts)} if groups else {}
    return {**conf, **({"capacity_ladder": None} if read else {}), **read, **of_groups}


def _read(
    spec: Mapping[str, Any], names: Mapping[str, str], conf: Mapping[str, Any]
) -> dict[str, Any]:
    read = {mine: _referred(spec.get(theirs), conf) for theirs, mine in names.items()}
    return {name: value for name, value in read.items() if value is not None}


def _referred(value: object, conf: Mapping[str, Any]) -> object:
    """Return a value, or the conf's that its template names; None if the template is another."""
    if not isinstance(value, str) or "{{" not in value:
        return value
    found = _REFERENCE.fullmatch(value.strip())
    return conf.get(found[1] or found[2]) if found else None


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


def cell_slots(conf: Mapping[str, Any], *, most: int) -> int:
    """Return the slots that one training of a comparison takes, from 1 to `most`.

    Those of its instances, as many as the comparison's largest has; with `cells_at_once` so many that no more run
    beside each other: one at a time takes the whole pool, so that nothing else disturbs what it measures.

    Args:
        conf: a comparison's conf as its author wrote it.
        most: the slots of the pool.
    """
    strategies = conf.get("strategies")
    listed = strategies if isinstance(strategies, list) else []
    of_each = [each.get("ranks") for each in listed if isinstance(each, Mapping)]
    counts = [count for ranks in (conf.get("ranks"), *of_each) for count in _list(ranks)]
    ranks = max((_count(each, absent=1) for each in counts), default=max(Comparison().ranks))
    instance_type = str(conf.get("instance_type", RunConf().instance_type))
    of_each_instance = _count(conf.get("processes_per_instance"), absent=ranks_on(instance_type))
    instances = -(-ranks // max(1, of_each_instance))
    at_once = _count(conf.get("cells_at_once"), absent=Comparison().cells_at_once)
    share = most // at_once if at_once > 0 else 1
    return max(1, min(most, max(instances, share)))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: object, *, absent: int) -> int:
    try:
        return int(str(value))
    except ValueError:
        return absent
