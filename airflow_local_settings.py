"""Airflow's cluster policy: a training takes as many slots of the pool of training instances as it has instances.

A search takes as many as its trials have at a time. Airflow imports this module by its name from the search path. It
does nothing unless `TRAINYARD_TRAINING_POOL` names a pool: a task of a pool that nobody created would wait for ever.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["task_instance_mutation_hook"]

# The operators whose tasks take instances, and what of include.planning.pool_slots says how many.
_SLOTS = {
    "TrainingJobOperator": "pool_slots",
    "TuneHyperparametersOperator": "search_slots",
    "TrialJobOperator": "trial_slots",
    "CellJobOperator": "cell_slots",
}


def task_instance_mutation_hook(task_instance: Any, dag_run: Any) -> None:
    """Put a training or a search into the pool, with a slot for each instance of its run.

    Runs where the scheduler creates or clears a task, which tells the run; elsewhere nothing is changed.
    """
    pool = os.environ.get("TRAINYARD_TRAINING_POOL")
    if not pool or dag_run is None or task_instance.operator not in _SLOTS:
        return
    from include.planning import pool_slots  # noqa: PLC0415  # every process of Airflow imports this file

    task_instance.pool = pool
    task_instance.pool_slots = getattr(pool_slots, _SLOTS[task_instance.operator])(
        dag_run.conf or {}, most=int(os.environ.get("TRAINYARD_TRAINING_POOL_SLOTS", "16"))
    )
