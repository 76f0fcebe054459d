"""Cost cap of a run: the amount left for a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.cost.cost_cap import unpriced
from trainyard.errors import SpecError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard.specs.base_run_conf import BaseRunConf
    from trainyard_airflow.tasks.shared.run_state import RunState

_LEAST_USD = 1e-6
"""Cap in USD of a task for which nothing is left; its first job is rejected."""


def cap_left_usd(
    context: Context, state: RunState[BaseRunConf], *, kept_back_usd: float = 0.0
) -> float | None:
    """Return the USD that all jobs of the context's task may cost; None if the run has no cap.

    The settled jobs of the run's other tasks are deducted. The task's own earlier attempts are not; they are deducted
    when the next attempt is created.

    Args:
        context: the task's context.
        state: state of its run.
        kept_back_usd: USD reserved for later tasks.

    Raises:
        SpecError: the cost of one of the run's jobs is unknown.
        TrainingRunError: S3 or the service rejected a call.
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
