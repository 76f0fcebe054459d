"""`TuningResult`: what a tuning task hands on, JSON-safe by `to_dict`, read back by `from_dict`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from trainyard.errors import ContractError
from trainyard.tuning.trials import typed_value

if TYPE_CHECKING:
    from collections.abc import Mapping


class EndedBy(StrEnum):
    """Who ended a search."""

    SERVICE = "service"
    """It ran all its trials, or met its completion criteria."""
    BUDGET = "budget"
    """The next trials would have cost more than is left of `budget_usd`."""
    TIME = "time"
    """The search's time limit was over, or left no time for another trial."""
    PERSON = "person"
    """Somebody stopped it: never a result, always an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Optimised metric; `type` is `Minimize` or `Maximize`."""

    metric_name: str
    type: str

    @property
    def maximize(self) -> bool:
        """True if more is better."""
        return self.type == "Maximize"


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTrial:
    """The winner.

    Attributes:
        tuned_hyperparameters: the values that won, as text without JSON quotes.
        hyperparameters: these and the static ones, without those of the toolkit and without secrets.
        model_artifacts: S3 URI of its model; None if it was stopped before it wrote one.
    """

    training_job_name: str
    value: float
    tuned_hyperparameters: Mapping[str, str]
    hyperparameters: Mapping[str, str]
    model_artifacts: str | None = None

    @property
    def tuned_values(self) -> dict[str, Any]:
        """The values that won as numbers, booleans and text, fit for a training job's hyperparameters."""
        return {name: typed_value(value) for name, value in self.tuned_hyperparameters.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """The result of a search.

    Attributes:
        status: `Completed`, or `Stopped` where a ceiling ended it.
        is_complete: False if the search was cut short, so that `best` is only the best so far.
        num_trials: by status: Completed, Failed, Stopped.
        billable_seconds: of all trials, each per instance.
        cost_usd: of all trials; None if the price is unknown. `estimated_cost_usd`: the most it could have cost.
        earlier_cost_usd: of the task's searches before this one, stopped or failed; 0 without a budget, which alone
            asks for it.
        trials_uri: the Parquet of all trials (`trainyard.tuning.trials`).
        importance: each tuned hyperparameter's share of the objective's variance, 0 to 1; empty if unknown.
    """

    tuning_job_name: str
    tuning_job_arn: str
    status: str
    ended_by: EndedBy
    is_complete: bool
    strategy: str
    objective: Objective
    best: BestTrial
    num_trials: Mapping[str, int]
    billable_seconds: float
    trials_uri: str
    cost_usd: float | None = None
    earlier_cost_usd: float = 0.0
    budget_usd: float | None = None
    estimated_cost_usd: float | None = None
    importance: Mapping[str, float] = field(default_factory=dict)

    @property
    def paid_usd(self) -> float | None:
        """Cost of all searches of the task; None if the price is unknown."""
        return None if self.cost_usd is None else self.cost_usd + self.earlier_cost_usd

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-safe data; `from_dict` reads it back."""
        return {**asdict(self), "ended_by": str(self.ended_by)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the result that `to_dict` wrote.

        Raises:
            ContractError: the data is no result of a search.
        """
        try:
            return cls(
                **{
                    **data,
                    "ended_by": EndedBy(data["ended_by"]),
                    "objective": Objective(**data["objective"]),
                    "best": BestTrial(**data["best"]),
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ContractError("this is no result of a search", got=sorted(data)) from error
