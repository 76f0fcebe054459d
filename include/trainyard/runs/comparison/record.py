"""Record of one comparison of parallelism strategies, complete or not.

A cell is one training of the comparison. The record has every planned cell, including cells that failed or
did not run.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from trainyard.cost.job_cost import job_cost, known_total
from trainyard.job_status import JobStatus
from trainyard.runs.comparison.measures import Measures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRecord:
    """One training of a comparison, with its result.

    Attributes:
        status: the status of the job, or of the task if it created no job.
        failure: why the training did not complete, as a sentence.
        cost_usd: cost of all attempts; None if it is not known.
        image_digest: digest of the image when the last job was created; None if it is not known.
        price_usd_per_hour: price of one instance.
    """

    name: str
    strategy: str
    ranks: int
    instance_count: int
    instance_type: str
    entry_point: str
    hyperparameters: Mapping[str, Any]
    distribution: Mapping[str, Any]
    image_uri: str | None = None
    image_digest: str | None = None
    job_name: str | None = None
    status: str | None = None
    failure: str | None = None
    attempts: int = 0
    training_seconds: float | None = None
    cost_usd: float | None = None
    price_usd_per_hour: float | None = None
    measures: Measures = field(default_factory=Measures)

    @property
    def is_measured(self) -> bool:
        """True if the training completed and its speed is known."""
        return self.failure is None and self.measures.samples_per_second is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRecord:
    """One comparison run. Times are epoch seconds. Stages that the run did not reach are None or empty.

    Attributes:
        conf: the run's params.
        plan: the plan that preflight made.
        loss_tolerance, worthwhile_efficiency: see `trainyard.specs.comparison_conf.Comparison`.
        ledger: all paid resources, as `Ledger.to_dict` returns them.
        failure: the error that ended the run before any cell could be compared.
    """

    dag_id: str
    run_id: str
    started_at: float | None
    ended_at: float
    tasks: Sequence[Mapping[str, Any]]
    cells: tuple[CellRecord, ...] = ()
    conf: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    loss_tolerance: float = 0.01
    worthwhile_efficiency: float = 0.5
    dataset_uri: str | None = None
    ledger: Mapping[str, Any] | None = None
    failure: Mapping[str, Any] | None = None

    @property
    def measured(self) -> tuple[CellRecord, ...]:
        """The cells that can be compared, in the requested order."""
        return tuple(each for each in self.cells if each.is_measured)

    @property
    def status(self) -> str:
        """`succeeded` if all cells were measured, `incomplete` if some were, and `failed` if none was."""
        if not self.measured:
            return "failed"
        return "succeeded" if len(self.measured) == len(self.cells) else "incomplete"

    def to_json(self, derived: Mapping[str, Any]) -> str:
        """Return the document `comparison.json`: the derived findings first, then the record."""
        data = {"status": self.status, **derived, **asdict(self)}
        return json.dumps(data, indent=1, default=str) + "\n"


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
    last_job = job or {}
    attempts = [*last_job.get("earlier_attempts", ()), last_job] if job else []
    costs = [job_cost(each) for each in attempts]
    status = last_job.get("status") or task_state or "not run"
    return CellRecord(
        name=cell["name"],
        strategy=cell["strategy"],
        ranks=cell["ranks"],
        instance_count=last_job.get("instance_count") or cell["instance_count"],
        instance_type=last_job.get("instance_type") or asked["instance_type"],
        entry_point=cell["entry_point"],
        hyperparameters=cell["hyperparameters"],
        distribution=cell["distribution"],
        image_uri=last_job.get("image_uri"),
        image_digest=last_job.get("image_digest"),
        job_name=last_job.get("name"),
        status=status,
        failure=None if status == JobStatus.COMPLETED else _reason(last_job, failure, status),
        attempts=len(attempts),
        training_seconds=last_job.get("training_seconds"),
        cost_usd=known_total(each.cost_usd for each in costs) if costs else None,
        price_usd_per_hour=costs[-1].price_usd_per_hour if costs else None,
        measures=measures,
    )


def _reason(job: Mapping[str, Any], failure: Mapping[str, Any] | None, status: str) -> str:
    """Return the reason why a cell did not complete: the error of its task, the service's reason, or its status."""
    if failure:
        parts = [failure.get("what"), failure.get("got")]
        return ": ".join(str(each) for each in parts if each)
    return str(job.get("failure_reason") or f"its task is {status}")
