"""Cluster policy for Airflow: a job's task takes one pool slot for each of its training instances.

The policy also keeps each task in the trace of its run (docs/observability.md).

Airflow finds the policy of an installed Trainyard by the entry point `airflow.policy`, and the policy of a checkout by
`plugins/airflow_local_settings.py`. The policy has no effect unless `TRAINYARD_TRAINING_POOL` names a pool, because a
task in a pool that does not exist would wait for ever. The variable may name several pools, separated by commas. A
pool may have a connection and patterns of instance types: `pool@connection=pattern|pattern`. A task without a pool gets
the first pool that fits its job. A task keeps the pool that its DAG's author chose, such as a team's pool: the policy
cannot choose a pool by team, because Airflow does not pass a task's team to it.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from airflow import policies, settings

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["pool_names", "task_instance_mutation_hook"]

log = logging.getLogger(__name__)

_DEFAULT_POOL = "default_pool"
_SLOTS_WITHOUT_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """One entry of `TRAINYARD_TRAINING_POOL`.

    Attributes:
        connection: connection of the tasks; None = any.
        types: patterns of instance types; empty = any.
        slots: number of slots.
    """

    name: str
    connection: str | None
    types: tuple[str, ...]
    slots: int

    def fits(self, *, connection: object, instance_type: str) -> bool:
        """Return whether the pool is for a job of this connection and instance type."""
        if self.connection not in (None, connection):
            return False
        return not self.types or any(fnmatchcase(instance_type, each) for each in self.types)


if "dag_run" in inspect.signature(policies.task_instance_mutation_hook).parameters:

    @policies.hookimpl
    def task_instance_mutation_hook(task_instance: Any, dag_run: Any) -> None:
        """Put a task with training instances into one of the pools that `TRAINYARD_TRAINING_POOL` lists.

        The task takes one slot per instance.

        The hook takes effect only if Airflow passes the run. The scheduler does so when it creates or clears a
        task. A task keeps a pool that its DAG's author chose. If `TRAINYARD_TRAINING_POOL` does not list that pool,
        the number of slots is not changed either. The hook never raises, because an exception would end the
        scheduler's loop. With several teams, the first pool must not belong to a team, or tasks of other teams
        would never be scheduled.
        """
        if dag_run is not None:
            _put_into_pool(task_instance, dag_run)
            _join_trace(task_instance, dag_run)

else:  # Airflow 3.2 does not pass the run

    @policies.hookimpl
    def task_instance_mutation_hook(task_instance: Any) -> None:  # type: ignore[misc]  # the older signature
        """Put a task with training instances into a pool, with one slot per instance.

        The run's conf is unknown here, so the defaults of the DAG's params are used in its place.
        """
        _put_into_pool(task_instance, None)


def activate() -> None:
    """Make Airflow call `task_instance_mutation_hook` if TRAINYARD_TRAINING_POOL is set.

    Airflow skips the hook while the hook's attribute `is_noop` is True. Airflow itself sets the attribute to
    False only for a hook in `airflow_local_settings`, not for a hook of an entry point. This function
    therefore sets it. If the environment variable is not set, the attribute stays True, because Airflow 3.2
    loses every task's trace context while the attribute is False.
    """
    if os.environ.get("TRAINYARD_TRAINING_POOL"):
        settings.task_instance_mutation_hook.is_noop = False  # type: ignore[attr-defined]


activate()  # with the import: Airflow reads the flag when it creates the first task


def pool_names() -> list[str]:
    """Return the names of the pools of `TRAINYARD_TRAINING_POOL`, in its order; empty if it is not set."""
    return [each.name for each in _pools()]


def _put_into_pool(task_instance: Any, dag_run: Any) -> None:
    try:
        _take_slots(task_instance, (dag_run and dag_run.conf) or {})
    except Exception:
        log.exception(
            "Task %s stays in its pool: TRAINYARD_TRAINING_POOL could not be applied", task_instance
        )


def _join_trace(task_instance: Any, dag_run: Any) -> None:
    """Give a new task a span in the trace of its run, as Airflow does if there is no policy.

    Airflow 3.3.2 omits this span if a policy's hook is called for the task (`DagRun._get_task_creator`).
    Without this span, each span of a worker would start a separate trace. This would affect the tasks
    of every DAG.
    """
    carrier = getattr(dag_run, "context_carrier", None)
    if task_instance.context_carrier or not carrier:
        return
    try:
        task_instance.context_carrier = _task_carrier(carrier)
    except Exception:
        log.exception("Task %s has no span in the trace of its run", task_instance)


def _task_carrier(carrier: Mapping[str, str]) -> dict[str, str]:
    """Return the trace context of a new child span of the run; Airflow exports this span when the task ends."""
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    propagator = TraceContextTextMapPropagator()
    parent = propagator.extract(carrier)
    span = trace.get_tracer(__name__).start_span("task", context=parent)
    found: dict[str, str] = {}
    propagator.inject(found, context=trace.set_span_in_context(span))
    return found


def _take_slots(task_instance: Any, conf: Mapping[str, Any]) -> None:
    pools = _pools()
    if not pools or task_instance.pool not in {_DEFAULT_POOL, *(each.name for each in pools)}:
        return
    # Every process of Airflow imports this module.
    from trainyard.planning.pool_slots import PoolDemand, conf_with_spec

    if task_instance.custom_operator_name not in set(PoolDemand):
        return
    demand = PoolDemand(task_instance.custom_operator_name)
    conf = {**_param_defaults(task_instance.task), **conf}
    confs = [conf_with_spec(spec, conf) for spec in _specs(task_instance.task)]
    pool = _pool_of(task_instance, pools, confs)
    if pool:
        slots = max(demand.slots(each, most=pool.slots) for each in confs)
        task_instance.pool, task_instance.pool_slots = pool.name, slots


def _pool_of(
    task_instance: Any, pools: Sequence[_Pool], confs: Sequence[Mapping[str, Any]]
) -> _Pool | None:
    """Return the pool that the DAG's author chose, or the first that fits the task's first job; None if none fits."""
    if task_instance.pool != _DEFAULT_POOL:
        return next(each for each in pools if each.name == task_instance.pool)
    from trainyard.planning.pool_slots import first_instance_type, referred

    connection = referred(_argument(task_instance.task, "aws_conn_id"), confs[0])
    wanted = first_instance_type(confs[0])
    return next(
        (each for each in pools if each.fits(connection=connection, instance_type=wanted)), None
    )


def _param_defaults(task: Any) -> dict[str, Any]:
    """Return the default of each param of the DAG to which a serialized task belongs."""
    return dict(task.dag.params) if task.dag else {}


def _specs(task: Any) -> Sequence[object]:
    """Return the specs of a serialized task's jobs: one, or several if the task is mapped over a list of specs."""
    expanded = getattr(task.expand_input, "value", {}) if task.is_mapped else {}
    listed = expanded.get("spec") if isinstance(expanded, Mapping) else None
    return listed if isinstance(listed, list) and listed else [_argument(task, "spec")]


def _argument(task: Any, name: str) -> object:
    """Return an argument of a serialized task, mapped or not; None if the task has no such argument."""
    return task.partial_kwargs.get(name) if task.is_mapped else getattr(task, name, None)


def _pools() -> list[_Pool]:
    """Return the pools that TRAINYARD_TRAINING_POOL names, in its order; empty if it is not set.

    TRAINYARD_TRAINING_POOL_SLOTS has the pools' numbers of slots, in the same order and separated by commas. If
    it has fewer numbers than there are pools, its last number applies to all further pools.
    """
    named = _listed(os.environ.get("TRAINYARD_TRAINING_POOL", ""))
    given = _listed(os.environ.get("TRAINYARD_TRAINING_POOL_SLOTS", "")) or [
        str(_SLOTS_WITHOUT_SIZE)
    ]
    sizes = [_size(each) for each in given[: len(named)]]
    pools = [_pool(text, sizes[min(at, len(sizes) - 1)]) for at, text in enumerate(named)]
    if not all(each.name for each in pools):
        log.error("TRAINYARD_TRAINING_POOL has an entry without a pool's name: %s", named)
    return [each for each in pools if each.name]


def _pool(text: str, slots: int) -> _Pool:
    """Parse one entry of TRAINYARD_TRAINING_POOL, and return the pool with this number of slots.

    The entry is `name`, `name@connection`, `name=pattern|pattern` or `name@connection=pattern`.
    A pattern matches names of instance types.
    """
    place, _, types = text.partition("=")
    name, _, connection = place.partition("@")
    return _Pool(
        name=name.strip(),
        connection=connection.strip() or None,
        types=tuple(each.strip() for each in types.split("|") if each.strip()),
        slots=slots,
    )


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _size(given: str) -> int:
    """Return a pool's number of slots, at least 1; 16 if the text is not a whole number."""
    if given.isdecimal():
        return max(1, int(given))
    log.error(
        "TRAINYARD_TRAINING_POOL_SLOTS is not a whole number: %r; using %d",
        given,
        _SLOTS_WITHOUT_SIZE,
    )
    return _SLOTS_WITHOUT_SIZE
