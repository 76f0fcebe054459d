"""Record of one comparison, complete or not: its cells, each trained or failed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from trainyard.runs.comparison.measures import Measures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRecord:
    """One training of a comparison, with what it came to.

    Attributes:
        status: the job's, or that of the task that came to no job.
        failure: why it did not complete, in words.
        cost_usd: of all its attempts; None if it is not known.
        price_usd_per_hour: of one instance.
    """

    name: str
    strategy: str
    ranks: int
    instance_count: int
    instance_type: str
    entry_point: str
    hyperparameters: Mapping[str, Any]
    distribution: Mapping[str, Any]
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
        """True if it was trained to its end and reports its speed."""
        return self.failure is None and self.measures.samples_per_second is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRecord:
    """One run. Times are epoch seconds; None and empty if the run did not come so far.

    Attributes:
        conf: the run's params. plan: what preflight worked out.
        loss_tolerance, worthwhile_efficiency: see `trainyard.specs.comparison_conf.Comparison`.
        ledger: everything paid, as `Ledger.to_dict`.
        failure: the error that ended the run before there was anything to compare.
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
        """The cells that can be compared, in the order they were asked for."""
        return tuple(each for each in self.cells if each.is_measured)

    @property
    def status(self) -> str:
        """`failed` if nothing can be compared, `incomplete` where a cell failed, else `succeeded`."""
        if not self.measured:
            return "failed"
        return "succeeded" if len(self.measured) == len(self.cells) else "incomplete"

    def to_json(self, derived: Mapping[str, Any]) -> str:
        """Return the record as the document `comparison.json`, what follows from it first."""
        data = {"status": self.status, **derived, **asdict(self)}
        return json.dumps(data, indent=1, default=str) + "\n"
