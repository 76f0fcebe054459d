"""`TuningResult`: the result of a tuning task, as JSON-safe data by `to_dict` and `from_dict`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from trainyard.errors import ContractError
from trainyard.tuning.trials import typed_value

if TYPE_CHECKING:
    from collections.abc import Mapping


class EndedBy(StrEnum):
    """Cause of a search's end."""

    SERVICE = "service"
    """The search ran all its trials, or met its completion criteria."""
    BUDGET = "budget"
    """Further trials could have exceeded `budget_usd`."""
    TIME = "time"
    """The search reached its time limit, or no trial could end before it."""
    PERSON = "person"
    """A person stopped the search. This is always an error and never part of a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Optimized metric; `type` is `Minimize` or `Maximize`."""

    metric_name: str
    type: str

    @property
    def maximize(self) -> bool:
        """True if a higher objective is better."""
        return self.type == "Maximize"


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTrial:
    """Winner of a search.

    Attributes:
        tuned_hyperparameters: tuned values, as text without JSON quotes.
        hyperparameters: tuned and static values, without secrets and without the hyperparameters
            that the service and the SageMaker toolkit add.
        model_artifacts: S3 URI of the model; None if the trial was stopped before it wrote one.
    """

    training_job_name: str
    value: float
    tuned_hyperparameters: Mapping[str, str]
    hyperparameters: Mapping[str, str]
    model_artifacts: str | None = None

    @property
    def tuned_values(self) -> dict[str, Any]:
        """Tuned values as numbers, booleans and text, for a training job's hyperparameters."""
        return {name: typed_value(value) for name, value in self.tuned_hyperparameters.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """The result of a search.

    Attributes:
        status: `Completed`, or `Stopped` if a limit ended the search.
        is_complete: False if the search was stopped early; `best` is then only the best trial so far.
        num_trials: number of trials by status: Completed, Failed, Stopped.
        billable_seconds: sum of the trials' billed times in seconds. The time of a trial is counted once,
            not once per instance.
        trials_uri: Parquet file of all trials (`trainyard.tuning.trials`).
        cost_usd: cost of all trials; None if the price is unknown.
        earlier_cost_usd: cost of the task's earlier searches, which were stopped or failed; 0 without a budget.
        estimated_cost_usd: the most that the search could have cost; None if unknown.
        importance: share of each tuned hyperparameter in the total importance, 0 to 1; empty if unknown.
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
        """Read the result from the data of `to_dict`.

        Raises:
            ContractError: the data is not the result of a search.
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
            raise ContractError(
                "the data is not the result of a search",
                got=f"the keys {', '.join(sorted(data))}",
                allowed="the data that the task of a search returns in this release of Trainyard",
                next_step="clear the task that ran the search; the task then finds its tuning job and returns "
                "the result again",
            ) from error
