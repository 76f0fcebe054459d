"""Record of one cell, from the run's params, its task's result and its job's snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.cost.job_cost import job_cost, total_usd
from trainyard.runs.comparison.record import CellRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.runs.comparison.measures import Measures


def cell_record(
    cell: Mapping[str, Any],
    asked: Mapping[str, Any],
    *,
    job: Mapping[str, Any] | None,
    task_state: str | None,
    failure: Mapping[str, Any] | None,
    measures: Measures,
) -> CellRecord:
    """Return the record of a cell.

    Args:
        cell: the cell, as `Cell.to_dict` returns it.
        asked: the run's params.
        job: the snapshot of the cell's last job; None if no job was created.
        task_state: the state of the cell's task.
        failure: the error of the cell's task, as `TrainingRunError.to_dict` returns it.
        measures: the measures in the job's output.
    """
    told = job or {}
    attempts = [*told.get("earlier_attempts", ()), told] if job else []
    costs = [job_cost(each) for each in attempts]
    amount, is_known = total_usd(costs)
    status = told.get("status") or task_state or "not run"
    return CellRecord(
        name=cell["name"],
        strategy=cell["strategy"],
        ranks=cell["ranks"],
        instance_count=told.get("instance_count") or cell["instance_count"],
        instance_type=told.get("instance_type") or asked["instance_type"],
        entry_point=cell["entry_point"],
        hyperparameters=cell["hyperparameters"],
        distribution=cell["distribution"],
        image_uri=told.get("image_uri"),
        image_digest=told.get("image_digest"),
        job_name=told.get("name"),
        status=status,
        failure=None if status == "Completed" else _reason(told, failure, status),
        attempts=len(attempts),
        training_seconds=told.get("training_seconds"),
        cost_usd=amount if costs and is_known else None,
        price_usd_per_hour=costs[-1].price_usd_per_hour if costs else None,
        measures=measures,
    )


def _reason(job: Mapping[str, Any], failure: Mapping[str, Any] | None, status: str) -> str:
    """Return why a cell did not complete: the error of its task, else the service's reason, else its status."""
    if failure:
        parts = [failure.get("what"), failure.get("got")]
        return ": ".join(str(each) for each in parts if each)
    return str(job.get("failure_reason") or f"its task is {status}")
