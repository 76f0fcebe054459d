"""Cost cap of a run, task by task: what is left of it for a task, and the lineage of a model that it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.cost.cost_cap import unpriced
from trainyard.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from trainyard.specs.base_run_conf import BaseRunConf
    from trainyard_airflow.tasks.shared.run_state import RunState

_LEAST_USD = 1e-6
"""Of a task to which nothing is left: its first job is then refused."""


def cap_left_usd(
    context: Context, state: RunState[BaseRunConf], *, kept_back_usd: float = 0.0
) -> float | None:
    """Return what the jobs of the context's task may be billed together; None if the run has no cap.

    The task's own jobs are not deducted: each of its attempts is, when the next one is placed.

    Args:
        context: the task's.
        state: of its run.
        kept_back_usd: for the tasks after it.

    Raises:
        SpecError: the price of what the run paid for is not known.
        TrainingRunError: S3 or the service refuses.
    """
    from trainyard_airflow.hooks.ledger import RunLedger  # a DAG file imports this module

    cap_usd = state.conf.max_cost_usd
    if cap_usd is None:
        return None
    task: Any = context["task"]
    ledger = RunLedger(task.clients, uri=state.paths.ledger).reconciled()
    others = [each for each in ledger.entries if each.task_id != task.task_id and each.is_settled]
    unknown = [each.name for each in others if each.cost_usd is None]
    if unknown:
        raise SpecError([unpriced(f"job {', '.join(unknown)}", cap_usd)], subject="cost cap")
    paid_usd = sum(each.cost_usd or 0.0 for each in others)
    return max(_LEAST_USD, cap_usd - paid_usd - kept_back_usd)


def stop_lineage(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lineage of a model whose training the cost cap stopped; nothing of any other.

    Args:
        training: the result of the training task.
    """
    stop = training.get("cap_stop")
    return (
        {} if stop is None else {"ended_by": training["ended_by"], "stopped_at_step": stop["step"]}
    )
