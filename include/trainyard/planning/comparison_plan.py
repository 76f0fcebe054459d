"""Plan of a comparison: its trainings and the most that they can cost together, before any job starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from trainyard.catalog.instances import ranks_on
from trainyard.cost.job_cost import CostEstimate, cluster_ceiling
from trainyard.errors import BudgetExceededError, Finding, Severity, SpecError
from trainyard.planning.evaluation_plan import processing_run_s
from trainyard.planning.run_cost import rung_estimate, total_cost
from trainyard.planning.run_plan import plan_run, price_warnings
from trainyard.specs.comparison_conf import ComparisonConf
from trainyard.specs.strategies.torch_distributed import TORCHRUN
from trainyard.task_ids import TaskId
from trainyard.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainyard.specs.comparison_conf import ComparedStrategy
    from trainyard.specs.run_conf import RunConf

_WITH_PROCESSES = ("torch_distributed", "mpi")
"""Sections of a distribution that have `processes_per_host`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One training of a comparison: a strategy on a number of ranks.

    Attributes:
        distribution: `distribution` argument of the SDK, with `processes_per_host` in each section that supports it.
    """

    name: str
    strategy: str
    ranks: int
    instance_count: int
    processes_per_instance: int
    distribution: Mapping[str, Any]
    entry_point: str
    hyperparameters: Mapping[str, Any]
    image_uri: str | None = None

    @property
    def slug(self) -> str:
        """The name in letters, digits and hyphens, such as `ddp-x8`."""
        return f"{self.strategy}-x{self.ranks}"

    def to_dict(self) -> dict[str, Any]:
        """Return the cell as JSON-safe data; `from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build the cell from the data of `to_dict`."""
        return cls(**data)

    def conf_of(self, run: RunConf) -> RunConf:
        """Return the run's conf with the cell's instances, ranks and image, and without a budget.

        Raises:
            SpecError: the run's batch sizes do not divide over these ranks.
        """
        return replace(
            run,
            instance_count=self.instance_count,
            processes_per_instance=self.processes_per_instance,
            image_uri=self.image_uri or run.image_uri,
            budget_usd=None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPlan:
    """A comparison whose trainings can all be run.

    Each training is a cell: a strategy on a number of ranks.

    Attributes:
        conf: the comparison's conf.
        sharding: the run's conf for sharding. Its instance count is the least common multiple of the cells'
            numbers of ranks, so that the shards divide evenly over the ranks of every cell.
        ceiling_usd: the most that all attempts of all jobs can cost; None if a price is unknown.
        once_usd: the most that all jobs can cost with one attempt each; None if a price is unknown.
        cost_note: calculation of the ceiling, in words.
        warnings: findings that do not stop the run.
    """

    conf: ComparisonConf
    cells: tuple[Cell, ...]
    sharding: RunConf
    ceiling_usd: float | None
    once_usd: float | None
    cost_note: str
    warnings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-safe data."""
        return {
            "comparison": self.conf.to_dict(),
            "cells": [each.to_dict() for each in self.cells],
            "ceiling_usd": self.ceiling_usd,
            "once_usd": self.once_usd,
            "cost_note": self.cost_note,
            "warnings": [str(each) for each in self.warnings],
        }


def plan_comparison(params: Mapping[str, Any], *, job_attempts: int = 1) -> ComparisonPlan:
    """Return the plan of a comparison. Each job may be started `job_attempts` times.

    Worked: cells of 1, 2, 1 and 2 ml.m5.large at 0.115 USD/h run for at most 600 s each. Together they cost at
    most 0.115 USD.

    Raises:
        SpecError: the conf or a cell is invalid; the findings name all errors.
        BudgetExceededError: the conf is valid, but the comparison could cost more than its budget_usd.
    """
    conf = ComparisonConf.from_mapping(params)
    cells, findings = cells_of(conf)
    by_cell = {each.name: _findings_of(each, conf.run) for each in cells}
    findings += merged_findings(by_cell)
    if any(each.severity is Severity.ERROR for each in findings):
        raise SpecError(findings, subject="comparison conf")
    estimates = {each.name: _estimate(each, conf.run) for each in cells} | _of_sharding(conf.run)
    cost = total_cost(estimates, job_attempts=job_attempts)
    plan = ComparisonPlan(
        conf=conf,
        cells=tuple(cells),
        sharding=replace(
            conf.run,
            instance_count=math.lcm(*(each.ranks for each in cells)),
        ),
        ceiling_usd=cost.ceiling_usd,
        once_usd=cost.once_usd,
        cost_note=cost.note,
        warnings=(*findings, *price_warnings(conf.run, cost)),
    )
    _keep_budget(conf.run.budget_usd, plan)
    return plan


def merged_findings(by_cell: Mapping[str, Iterable[Finding]]) -> list[Finding]:
    """Return each finding once, with the names of the cells that have it.

    A cell is one training of the comparison. A finding that all cells have is returned without names.

    Args:
        by_cell: the findings of each cell, by the cell's name.
    """
    cells_of: dict[Finding, list[str]] = {}
    for name, findings in by_cell.items():
        for each in dict.fromkeys(findings):
            cells_of.setdefault(each, []).append(name)
    return [
        each if len(names) == len(by_cell) else each.at(", ".join(names))
        for each, names in cells_of.items()
    ]


def cells_of(conf: ComparisonConf) -> tuple[list[Cell], list[Finding]]:
    """Return the cells of a comparison (strategy and number of ranks), and errors for invalid numbers of ranks.

    A number of ranks is invalid if it needs several instances and does not fill all of them.
    """
    cells: list[Cell] = []
    findings: list[Finding] = []
    per_instance = conf.comparison.processes_per_instance or ranks_on(conf.run.instance_type)
    for index, strategy in enumerate(conf.comparison.strategies):
        for ranks in conf.comparison.ranks_of(strategy):
            processes = min(ranks, per_instance)
            if ranks % processes:
                findings.append(_no_layout(index, strategy, ranks, per_instance))
                continue
            cells.append(_cell(strategy, ranks=ranks, processes=processes))
    return cells, findings


def _cell(strategy: ComparedStrategy, *, ranks: int, processes: int) -> Cell:
    given = strategy.distribution or TORCHRUN
    return Cell(
        name=f"{strategy.name} x {ranks}",
        strategy=strategy.name,
        ranks=ranks,
        instance_count=ranks // processes,
        processes_per_instance=processes,
        distribution={
            name: {"processes_per_host": processes, **section}
            if name in _WITH_PROCESSES and isinstance(section, Mapping)
            else section
            for name, section in given.items()
        },
        entry_point=strategy.entry_point,
        hyperparameters=dict(strategy.hyperparameters),
        image_uri=strategy.image_uri,
    )


def _no_layout(index: int, strategy: ComparedStrategy, ranks: int, per_instance: int) -> Finding:
    return Finding(
        where=f"strategies[{index}].ranks" if strategy.ranks else "ranks",
        what="does not fill whole instances",
        got=f"{ranks} ranks, but each instance runs {per_instance}",
        allowed=f"fewer than {per_instance}, or a multiple of {per_instance}",
    )


def _findings_of(cell: Cell, run: RunConf) -> Iterator[Finding]:
    """Yield errors and warnings about a cell's ranks, batches, instances and shards."""
    try:
        yield from plan_run(asdict(cell.conf_of(run))).warnings
    except SpecError as error:
        yield from error.findings


def _estimate(cell: Cell, run: RunConf) -> CostEstimate:
    conf = cell.conf_of(run)
    return rung_estimate(conf, conf.rungs[0])


def _of_sharding(run: RunConf) -> dict[str, CostEstimate]:
    if not run.shard_instance_count:
        return {}
    return {
        TaskId.SHARD: cluster_ceiling(
            {run.shard_instance_type: run.shard_instance_count}, max_run_s=processing_run_s(run)
        )
    }


def _keep_budget(budget: float | None, plan: ComparisonPlan) -> None:
    if budget is None or plan.ceiling_usd is None or plan.ceiling_usd <= budget:
        return
    once = (
        ""
        if plan.once_usd == plan.ceiling_usd
        else f"{format_usd(plan.once_usd)} with one attempt per job; "
    )
    raise BudgetExceededError(
        "the comparison could cost more than its budget",
        budget_usd=budget,
        needed_usd=plan.ceiling_usd,
        where="budget_usd",
        got=f"up to {format_usd(plan.ceiling_usd)} ({once}{plan.cost_note})",
        allowed=f"at most {format_usd(budget)}",
        next_step="raise budget_usd, lower max_run_s, or remove strategies or ranks",
    )
