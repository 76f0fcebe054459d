"""Airflow pool slots of a run's training, search, trials or comparison cells, one per instance.

The module also finds the instance type of a run's training.
"""

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
    """Kinds of tasks that use training instances.

    The value of a kind is also the name that the UI shows for its operators (their `custom_operator_name`).
    Airflow stores this name with each task, mapped or not, and subclasses of an operator inherit it. So the
    scheduler can read the kind of a task without importing the operator's class.
    """

    TRAINING = "SageMaker training"
    SEARCH = "SageMaker search"
    TRIAL = "SageMaker trial"
    CELL = "SageMaker comparison cell"

    def slots(self, conf: Mapping[str, Any], *, most: int) -> int:
        """Return the slots of a task of this kind in a run with this conf, from 1 to `most`."""
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
    """Return a run's conf, updated with the instances, capacity ladder and parallel trials in the spec of its job.

    The scheduler does not render templates. If a template is a single reference to a param or to a value of the
    conf, this function resolves it. Other templates are ignored. If the spec is a function, the conf is
    unchanged. If the spec has an instance count and no capacity ladder, the result has no ladder.

    Args:
        spec: spec of a training or a search as the DAG's author wrote it.
        conf: conf of the run, merged over the defaults of the DAG's params.
    """
    if not isinstance(spec, Mapping):
        return dict(conf)
    if isinstance(spec.get("training"), Mapping):
        of_search = {"tuning_instance_count": 0, **_read(spec, _OF_THE_SEARCH, conf)}
        return {**conf_with_spec(spec["training"], conf), **of_search}
    read = _read(spec, _OF_THE_RUN, conf)
    names = ("instance_type", "instance_count")
    groups = [{name: referred(each.get(name), conf) for name in names} for each in _groups(spec)]
    own_type = referred(spec.get("instance_type"), conf)
    of_type = {} if own_type is None else {"instance_type": own_type}
    no_ladder = {"capacity_ladder": None} if read or groups else {}
    return {**conf, **no_ladder, **read, **of_type, "instance_groups": groups}


def referred(value: object, conf: Mapping[str, Any]) -> object:
    """Return a value of a spec or operator, with a template replaced by the conf's value that it references.

    Only a template that is a single reference is replaced, such as `{{ params.instance_type }}`. The result is None
    for any other template, and for a name that the conf does not have.
    """
    if not isinstance(value, str) or "{{" not in value:
        return value
    found = _REFERENCE.fullmatch(value.strip())
    return conf.get(found[1] or found[2]) if found else None


def first_instance_type(conf: Mapping[str, Any]) -> str:
    """Return the instance type of a run's training: with a capacity ladder or groups, that of the first tier or group.

    Args:
        conf: a DAG run's conf as its author wrote it, as for `pool_slots`.
    """
    rungs = [each for each in _list(conf.get("capacity_ladder"))[:1] if isinstance(each, Mapping)]
    given = [each.get("instance_type") for each in (*rungs, *_groups(conf)[:1], conf)]
    return next((each for each in given if isinstance(each, str)), RunConf().instance_type)


def _read(
    spec: Mapping[str, Any], names: Mapping[str, str], conf: Mapping[str, Any]
) -> dict[str, Any]:
    read = {mine: referred(spec.get(theirs), conf) for theirs, mine in names.items()}
    return {name: value for name, value in read.items() if value is not None}


def pool_slots(conf: Mapping[str, Any], *, most: int) -> int:
    """Return the number of pool slots that a run's training takes: its number of instances, from 1 to `most`.

    With instance groups, this is the sum over all groups. With a capacity ladder, it is the largest number of any tier.
    The scheduler calls this, so an invalid conf, which preflight will reject, is not an error here. A training with
    more instances than the pool has slots takes all slots, because it would never start with more.

    Args:
        conf: a DAG run's conf as its author wrote it; missing fields have their defaults.
        most: the slots of the pool.
    """
    own = _count(conf.get("instance_count"), absent=RunConf().instance_count)
    if groups := _groups(conf):
        own = sum(_count(each.get("instance_count"), absent=1) for each in groups)
    rungs = [each for each in _list(conf.get("capacity_ladder")) if isinstance(each, Mapping)]
    counts = [_count(each.get("instance_count"), absent=own) for each in rungs] or [own]
    return max(1, min(most, max(counts)))


def search_slots(conf: Mapping[str, Any], *, most: int) -> int:
    """Return the pool slots of a run's search: the parallel trials times the slots of one trial.

    The result is at least 1 and at most `most`.

    Args:
        conf: a DAG run's conf as its author wrote it, as for `pool_slots`.
        most: the slots of the pool.
    """
    at_once = _count(
        conf.get("tuning_max_parallel_jobs"), absent=RunConf().tuning_max_parallel_jobs
    )
    return max(1, min(most, max(1, at_once) * trial_slots(conf, most=most)))


def trial_slots(conf: Mapping[str, Any], *, most: int) -> int:
    """Return the number of instances of one trial of a run's search, at least 1 and at most `most`.

    The arguments are those of `search_slots`.
    """
    own = _count(conf.get("tuning_instance_count"), absent=0)
    return max(1, min(most, own)) if own > 0 else pool_slots(conf, most=most)


def cell_slots(conf: Mapping[str, Any], *, most: int) -> int:
    """Return the slots of one training of a comparison, from 1 to `most`.

    The result is the largest of these numbers:

    - the instances of the comparison's largest training
    - the pool's slots divided by `cells_at_once`, rounded down
    - the smallest number of slots per training with which no more than `cells_at_once` trainings fit into the
      pool

    Worked: for trainings of one instance, a pool of 8 slots and 3 cells at once, the numbers are 1, 2 and 3, so
    a training takes 3 slots. If `cells_at_once` is 1, a training takes the whole pool, and no other job
    disturbs its measurements.

    Args:
        conf: a comparison's conf as its author wrote it.
        most: the slots of the pool.
    """
    strategies = _list(conf.get("strategies"))
    of_each = [each.get("ranks") for each in strategies if isinstance(each, Mapping)]
    counts = [count for ranks in (conf.get("ranks"), *of_each) for count in _list(ranks)]
    ranks = max((_count(each, absent=1) for each in counts), default=max(Comparison().ranks))
    instance_type = str(conf.get("instance_type", RunConf().instance_type))
    of_each_instance = _count(conf.get("processes_per_instance"), absent=ranks_on(instance_type))
    instances = -(-ranks // max(1, of_each_instance))
    at_once = _count(conf.get("cells_at_once"), absent=Comparison().cells_at_once)
    share = max(most // at_once, most // (at_once + 1) + 1) if at_once > 0 else 1
    return max(1, min(most, max(instances, share)))


def _groups(conf: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in _list(conf.get("instance_groups")) if isinstance(each, Mapping)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: object, *, absent: int) -> int:
    try:
        return int(str(value))
    except ValueError:
        return absent
