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
    """One run. Times are epoch seconds; None and empty if the run did not come so far.

    Attributes:
        conf: the run's params.
        facts: of the data: `num_rows` by split, `num_columns`, `fingerprint`.
        search: what the AutoML task returned.
        candidates: all of them, the best first.
        importance: `name, importance, std` of each column, the most important first.
        evaluation: the test rows' `metrics`, `baseline`, `confusion_matrix`.
        model: what was registered.
        ledger: everything paid, as `Ledger.to_dict`.
        failure: the error that ended the run.
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
        """`failed` where a task failed, else `succeeded`."""
        return "failed" if self.failure else "succeeded"

    @property
    def metric(self) -> str | None:
        """The objective's name."""
        return self.search["objective"]["metric_name"] if self.search else None

    @property
    def is_minimized(self) -> bool:
        """True if less of the objective is better."""
        return self.metric in MINIMIZED

    @property
    def beats_baseline(self) -> bool | None:
        """True if the model is better than the baseline on the test rows; None if that is not known."""
        name, told = self.metric, self.evaluation
        if told is None or name not in told["metrics"] or name not in told["baseline"]:
            return None
        model, baseline = float(told["metrics"][name]), float(told["baseline"][name])
        return model < baseline if self.is_minimized else model > baseline

    def to_json(self) -> str:
        """Return the record as the document `report.json`."""
        derived = {
            "status": self.status,
            "metric": self.metric,
            "beats_baseline": self.beats_baseline,
        }
        return json.dumps({**derived, **asdict(self)}, indent=1, default=str) + "\n"
