"""Record of one AutoML run, complete or not."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MINIMIZED = frozenset({"MSE", "RMSE", "MAE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularRecord:
    """Record of one AutoML run. Times are epoch seconds. Data of steps that the run did not reach is None or empty.

    Attributes:
        conf: the run's params.
        facts: facts of the data, such as `target`, `num_rows` by split, `num_columns` and `fingerprint`.
        search: result of the AutoML task.
        candidates: all candidates, the best first.
        importance: `name`, `importance` and `std` per column, the most important first.
        evaluation: `metrics`, `baseline` and `confusion_matrix` on the test rows.
        model: the registered model.
        ledger: billed resources, as `Ledger.to_dict` returns them.
        failure: error that ended the run.
    """

    dag_id: str
    run_id: str
    started_at: float | None
    ended_at: float
    tasks: Sequence[Mapping[str, Any]]
    conf: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] | None = None
    search: Mapping[str, Any] | None = None
    candidates: Sequence[Mapping[str, Any]] = ()
    importance: Sequence[Mapping[str, Any]] = ()
    evaluation: Mapping[str, Any] | None = None
    model: Mapping[str, Any] | None = None
    ledger: Mapping[str, Any] | None = None
    failure: Mapping[str, Any] | None = None

    @property
    def status(self) -> str:
        """`failed` if an error ended the run, otherwise `succeeded`."""
        return "failed" if self.failure else "succeeded"

    @property
    def metric(self) -> str | None:
        """Name of the objective; None without a search result."""
        return self.search["objective"]["metric_name"] if self.search else None

    @property
    def is_minimized(self) -> bool:
        """True if a lower objective is better."""
        return self.metric in MINIMIZED

    @property
    def beats_baseline(self) -> bool | None:
        """True if the model is better than the baseline on the test rows; None if unknown."""
        name, evaluation = self.metric, self.evaluation
        if (
            evaluation is None
            or name not in evaluation["metrics"]
            or name not in evaluation["baseline"]
        ):
            return None
        model, baseline = float(evaluation["metrics"][name]), float(evaluation["baseline"][name])
        return model < baseline if self.is_minimized else model > baseline

    def to_json(self) -> str:
        """Return the record as the document `report.json`."""
        derived = {
            "status": self.status,
            "metric": self.metric,
            "beats_baseline": self.beats_baseline,
        }
        return json.dumps({**derived, **asdict(self)}, indent=1, default=str) + "\n"
