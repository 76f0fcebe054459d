"""Airflow's cluster policy: a task takes as many slots of the pool of training instances as it has instances.

An installed Trainyard is found by its entry point `airflow.policy`, a checkout by `plugins/airflow_local_settings.py`.
It does nothing unless `TRAINYARD_TRAINING_POOL` names a pool: a task of a pool that nobody created would wait for ever.
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
        """Put a task that takes training instances into the pool, with a slot for each of them.

        Runs where the scheduler creates or clears a task, and gives the run; elsewhere nothing is changed. A pool that
        the DAG's author chose stays. No error leaves it: that would end the scheduler's loop. With several teams, the
        pool must be one without a team: tasks of other teams would never be scheduled in it.
        """
        if dag_run is not None:
            _put_into_pool(task_instance, dag_run)

else:  # Airflow 3.2 gives no run

    @policies.hookimpl
    def task_instance_mutation_hook(task_instance: Any) -> None:  # type: ignore[misc]  # the older signature
        """Put a task that takes training instances into the pool, with the slots of a run with default settings."""
        _put_into_pool(task_instance, None)


# Airflow clears this mark for hooks of `airflow_local_settings` only: one of an entry point would never be called.
settings.task_instance_mutation_hook.is_noop = False  # type: ignore[attr-defined]


def _put_into_pool(task_instance: Any, dag_run: Any) -> None:
    try:
        _take_slots(task_instance, (dag_run and dag_run.conf) or {})
    except Exception:
        log.exception(
            "Task %s stays in its pool: TRAINYARD_TRAINING_POOL could not be applied", task_instance
        )


def _take_slots(task_instance: Any, conf: Mapping[str, Any]) -> None:
    pool = os.environ.get("TRAINYARD_TRAINING_POOL")
    if not pool or task_instance.pool not in {_DEFAULT_POOL, pool}:
        return
    # Every process of Airflow imports this module.
    from trainyard.planning.pool_slots import PoolDemand, conf_with_spec

    if task_instance.custom_operator_name not in set(PoolDemand):
        return
    demand = PoolDemand(task_instance.custom_operator_name)
    conf = {**_param_defaults(task_instance.task), **conf}
    most = _pool_size()
    slots = [
        demand.slots(conf_with_spec(spec, conf), most=most) for spec in _specs(task_instance.task)
    ]
    task_instance.pool, task_instance.pool_slots = pool, max(slots)


def _param_defaults(task: Any) -> dict[str, Any]:
    """Return the defaults of the params of a stored task's DAG."""
    return dict(task.dag.params) if task.dag else {}


def _specs(task: Any) -> Sequence[object]:
    """Return the specs of a stored task's jobs: one, or all that a mapped task is known to have."""
    if not task.is_mapped:
        return [getattr(task, "spec", None)]
    expanded = getattr(task.expand_input, "value", {})
    listed = expanded.get("spec") if isinstance(expanded, Mapping) else None
    return listed if isinstance(listed, list) and listed else [task.partial_kwargs.get("spec")]


def _pool_size() -> int:
    """Return the pool's slots; 16 if the variable is no number: an error here would end the scheduler's loop."""
    given = os.environ.get("TRAINYARD_TRAINING_POOL_SLOTS", str(_SLOTS_WITHOUT_SIZE))
    if given.isdecimal():
        return max(1, int(given))
    log.error(
        "TRAINYARD_TRAINING_POOL_SLOTS is no whole number: %r; using %d", given, _SLOTS_WITHOUT_SIZE
    )
    return _SLOTS_WITHOUT_SIZE
