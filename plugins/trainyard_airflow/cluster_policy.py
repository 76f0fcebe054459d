"""Cluster policy for Airflow: a task occupies one slot of the pool for training instances per instance.

Airflow finds the policy of an installed Trainyard by the entry point `airflow.policy`, and that of a checkout by
`plugins/airflow_local_settings.py`. The policy has no effect unless `TRAINYARD_TRAINING_POOL` names a pool, because a
task in a pool that does not exist would wait for ever. It may name several, separated by commas, such as one per team:
the first is for tasks without a pool, the others for tasks whose DAG's author chose one of them. Airflow does not pass
a task's team to a policy.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow import policies, settings

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["task_instance_mutation_hook"]

log = logging.getLogger(__name__)

_DEFAULT_POOL = "default_pool"
_SLOTS_WITHOUT_SIZE = 16

if "dag_run" in inspect.signature(policies.task_instance_mutation_hook).parameters:

    @policies.hookimpl
    def task_instance_mutation_hook(task_instance: Any, dag_run: Any) -> None:
        """Put a task with training instances into the pool, with one slot per instance.

        It takes effect only if Airflow passes the run, which the scheduler does when it creates or clears a task. A
        pool that the DAG's author chose is kept, and counts instances only if it is one of the named pools. The hook
        never raises, because an exception would end the scheduler's loop. With several teams, the first pool must not
        belong to a team, or tasks of other teams would never be scheduled.
        """
        if dag_run is not None:
            _put_into_pool(task_instance, dag_run)

else:  # Airflow 3.2 does not pass the run

    @policies.hookimpl
    def task_instance_mutation_hook(task_instance: Any) -> None:  # type: ignore[misc]  # the older signature
        """Put a task with training instances into the pool, with the slots of a run with default settings."""
        _put_into_pool(task_instance, None)


# Airflow clears this flag only for hooks of `airflow_local_settings`; an entry point's hook would never be called.
settings.task_instance_mutation_hook.is_noop = False  # type: ignore[attr-defined]


def _put_into_pool(task_instance: Any, dag_run: Any) -> None:
    try:
        _take_slots(task_instance, (dag_run and dag_run.conf) or {})
    except Exception:
        log.exception(
            "Task %s stays in its pool: TRAINYARD_TRAINING_POOL could not be applied", task_instance
        )


def _take_slots(task_instance: Any, conf: Mapping[str, Any]) -> None:
    sizes = _pool_sizes()
    if not sizes or task_instance.pool not in {_DEFAULT_POOL, *sizes}:
        return
    pool = next(iter(sizes)) if task_instance.pool == _DEFAULT_POOL else task_instance.pool
    # Every process of Airflow imports this module.
    from trainyard.planning.pool_slots import PoolDemand, conf_with_spec

    if task_instance.custom_operator_name not in set(PoolDemand):
        return
    demand = PoolDemand(task_instance.custom_operator_name)
    conf = {**_param_defaults(task_instance.task), **conf}
    slots = [
        demand.slots(conf_with_spec(spec, conf), most=sizes[pool])
        for spec in _specs(task_instance.task)
    ]
    task_instance.pool, task_instance.pool_slots = pool, max(slots)


def _param_defaults(task: Any) -> dict[str, Any]:
    """Return the defaults of the params of a stored task's DAG."""
    return dict(task.dag.params) if task.dag else {}


def _specs(task: Any) -> Sequence[object]:
    """Return the specs of a stored task's jobs: one, or several if the task is mapped over a list of specs."""
    if not task.is_mapped:
        return [getattr(task, "spec", None)]
    expanded = getattr(task.expand_input, "value", {})
    listed = expanded.get("spec") if isinstance(expanded, Mapping) else None
    return listed if isinstance(listed, list) and listed else [task.partial_kwargs.get("spec")]


def _pool_sizes() -> dict[str, int]:
    """Return the slots of each pool of TRAINYARD_TRAINING_POOL, in its order; empty without a pool.

    TRAINYARD_TRAINING_POOL_SLOTS has a number per pool, separated by commas. The last number applies to all further
    pools.
    """
    pools = _listed(os.environ.get("TRAINYARD_TRAINING_POOL", ""))
    given = _listed(os.environ.get("TRAINYARD_TRAINING_POOL_SLOTS", "")) or [
        str(_SLOTS_WITHOUT_SIZE)
    ]
    sizes = [_size(each) for each in given[: len(pools)]]
    return {pool: sizes[min(at, len(sizes) - 1)] for at, pool in enumerate(pools)}


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _size(given: str) -> int:
    """Return a pool's slots; 16 if the text is not a whole number."""
    if given.isdecimal():
        return max(1, int(given))
    log.error(
        "TRAINYARD_TRAINING_POOL_SLOTS is not a whole number: %r; using %d",
        given,
        _SLOTS_WITHOUT_SIZE,
    )
    return _SLOTS_WITHOUT_SIZE
