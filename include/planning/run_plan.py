"""What one run will do and take, worked out before any job starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from include.errors import Finding
from include.specs.run_conf import RunConf


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A conf that fits: its ranks, batches, shards and ceilings.

    Attributes:
        gradient_accumulation_steps: micro batches of one rank per optimizer step.
        num_shards: of the train split; a multiple of the ranks.
        ceiling_usd: what the training job can cost at most; None when the price is unknown.
        warnings: findings that do not stop the run.
    """

    conf: RunConf
    world_size: int
    gradient_accumulation_steps: int
    num_shards: int
    ceiling_usd: float | None
    warnings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-safe data."""
        raise NotImplementedError


def plan_run(params: Mapping[str, Any]) -> RunPlan:
    """Return the plan for a run's params.

    Raises:
        SpecError: every problem of the conf itself and of the instance type, batches, shards and limits.
        BudgetExceededError: the conf is right, but could cost more than budget_usd.
    """
    raise NotImplementedError
