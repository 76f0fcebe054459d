"""`Trial`: hyperparameters and result of one training job of a search; conversion of trials to and from Parquet."""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from trainyard.job_status import TERMINAL_STATUSES, JobStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

PARQUET = "application/vnd.apache.parquet"
"""Content type of a Parquet file."""
_PREFIX = "hp_"
_TUNED = "tuned_hyperparameters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One trial. Times are epoch seconds, durations seconds.

    Attributes:
        status: status of the training job: InProgress, Completed, Failed, Stopping, Stopped.
        definition: name of the training job definition; None if the search's only definition has no name.
        objective: final value; None while the trial runs, and if it never logged one.
        tuned_hyperparameters: tuned values, as text without JSON quotes.
        billable_seconds: billable seconds per instance; for a running trial those so far.
        cost_usd: cost by the catalogue's price; None if that is unknown.
        is_early_stopped: True if early stopping ended the trial while the search continued.
        resumed_from: training job from which the trial resumed; None for a new start.
    """

    training_job_name: str
    status: str
    definition: str | None = None
    objective: float | None = None
    tuned_hyperparameters: Mapping[str, str] = field(default_factory=dict)
    started_at: float | None = None
    ended_at: float | None = None
    billable_seconds: float | None = None
    cost_usd: float | None = None
    failure_reason: str | None = None
    is_early_stopped: bool = False
    resumed_from: str | None = None

    @property
    def is_terminal(self) -> bool:
        """True if its training job has ended."""
        return self.status in TERMINAL_STATUSES

    @property
    def is_usable(self) -> bool:
        """True if the trial ended with an objective and did not fail."""
        return self.is_terminal and self.status != JobStatus.FAILED and self.objective is not None


def plain_text(value: str) -> str:
    """Return a hyperparameter's wire text without JSON quotes: `"adam"` becomes `adam`."""
    read = typed_value(value)
    return read if isinstance(read, str) else value


def typed_value(value: str) -> Any:
    """Return a hyperparameter's value as the SageMaker toolkit decodes its text.

    This is the JSON value of the text. Text that is not JSON, or is a number that is not finite, is
    returned unchanged.
    """
    try:
        read = json.loads(value)
    except ValueError:
        return value
    return value if isinstance(read, float) and not math.isfinite(read) else read


def best_trial(trials: Iterable[Trial], *, maximize: bool) -> Trial | None:
    """Return the usable trial with the best objective (the first on a tie); None if no trial is usable."""
    usable = [each for each in trials if each.is_usable and math.isfinite(each.objective or 0.0)]
    sign = -1 if maximize else 1
    return min(usable, key=lambda each: sign * (each.objective or 0.0), default=None)


def to_parquet(trials: Sequence[Trial], *, categorical: Collection[str] = ()) -> bytes:
    """Return the trials as a Parquet file, one row per trial and one column `hp_<name>` per tuned hyperparameter.

    Values in these columns are doubles, or text if the hyperparameter is in `categorical` or has a value that is not a
    number.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [_row(each) for each in trials]
    names = sorted({name for each in trials for name in each.tuned_hyperparameters})
    tuned = {f"{_PREFIX}{name}": _column(trials, name, categorical=categorical) for name in names}
    schema = _schema()
    columns = {
        name: pa.array([r[name] for r in rows], schema.field(name).type) for name in schema.names
    }
    stream = io.BytesIO()
    pq.write_table(pa.table({**columns, **tuned}), stream)
    return stream.getvalue()


def from_parquet(content: bytes) -> list[Trial]:
    """Return the trials of a file that `to_parquet` wrote."""
    import pyarrow.parquet as pq

    known = {each.name for each in fields(Trial)} - {_TUNED}
    trials = []
    for row in pq.read_table(io.BytesIO(content)).to_pylist():
        tuned = {
            name.removeprefix(_PREFIX): _text(value)
            for name, value in row.items()
            if name.startswith(_PREFIX) and value is not None
        }
        members = {name: value for name, value in row.items() if name in known}
        trials.append(Trial(**members, tuned_hyperparameters=tuned))
    return trials


def _row(trial: Trial) -> dict[str, Any]:
    return {each.name: getattr(trial, each.name) for each in fields(trial) if each.name != _TUNED}


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        {
            "training_job_name": pa.string(),
            "definition": pa.string(),
            "status": pa.string(),
            "objective": pa.float64(),
            "started_at": pa.float64(),
            "ended_at": pa.float64(),
            "billable_seconds": pa.float64(),
            "cost_usd": pa.float64(),
            "failure_reason": pa.string(),
            "is_early_stopped": pa.bool_(),
            "resumed_from": pa.string(),
        }
    )


def _column(trials: Sequence[Trial], name: str, *, categorical: Collection[str]) -> pa.Array:
    import pyarrow as pa

    values = [each.tuned_hyperparameters.get(name) for each in trials]
    if name not in categorical:
        numbers = [None if value is None else _number(value) for value in values]
        if sum(each is None for each in numbers) == values.count(None):
            return pa.array(numbers, pa.float64())
    return pa.array(values, pa.string())


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _text(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)
