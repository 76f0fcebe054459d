"""Cost cap of a run: the amount left for a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.units import format_usd

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

    The cost of the settled jobs of the run's other tasks is deducted. A job is settled if it no longer costs
    money. The cost of the task's own earlier attempts is deducted later, when the next attempt is created.

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
        finding = Finding(
            where="max_cost_usd",
            what="cannot be enforced, because the cost of an earlier job is unknown",
            got=f"{format_usd(cap_usd)} for a run with {', '.join(unknown)}",
            next_step="start a new run without max_cost_usd, or on instance types with a known price",
        )
        raise SpecError(finding, subject="cost cap")
    paid_usd = sum(each.cost_usd or 0.0 for each in others)
    return max(_LEAST_USD, cap_usd - paid_usd - kept_back_usd)
