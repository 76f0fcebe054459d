"""Airflow's cluster policy: a task takes as many slots of the pool of training instances as it has instances.

Airflow puts the plugins folder on the import path and imports this module by its name. It does nothing unless
`TRAINYARD_TRAINING_POOL` names a pool: a task of a pool that nobody created would wait for ever.
"""

from __future__ import annotations

import logging
import os
from typing import Any

__all__ = ["task_instance_mutation_hook"]

log = logging.getLogger(__name__)

_DEFAULT_POOL = "default_pool"


def task_instance_mutation_hook(task_instance: Any, dag_run: Any) -> None:
    """Put a task that takes training instances into the pool, with a slot for each of them.

    Runs where the scheduler creates or clears a task, which tells the run; elsewhere nothing is changed. A pool that
    the DAG's author chose stays. No error leaves it: that would end the scheduler's loop. With several teams, the pool
    must be one without a team: tasks of other teams would never be scheduled in it.
    """
    try:
        _put_into_pool(task_instance, dag_run)
    except Exception:
        log.exception(
            "Task %s stays in its pool: TRAINYARD_TRAINING_POOL could not be applied", task_instance
        )


def _put_into_pool(task_instance: Any, dag_run: Any) -> None:
    pool = os.environ.get("TRAINYARD_TRAINING_POOL")
    if not pool or dag_run is None or task_instance.pool not in {_DEFAULT_POOL, pool}:
        return
    from trainyard.planning.pool_slots import PoolDemand  # noqa: PLC0415  # every process of Airflow imports this file

    if task_instance.custom_operator_name not in set(PoolDemand):
        return
    demand = PoolDemand(task_instance.custom_operator_name)
    slots = demand.slots(dag_run.conf or {}, most=_pool_size())
    task_instance.pool, task_instance.pool_slots = pool, slots


def _pool_size() -> int:
    """Return the pool's slots; 16 if the variable is no number: an error here would end the scheduler's loop."""
    given = os.environ.get("TRAINYARD_TRAINING_POOL_SLOTS", "16")
    if given.isdecimal():
        return max(1, int(given))
    log.error("TRAINYARD_TRAINING_POOL_SLOTS is no whole number: %r; using 16", given)
    return 16
