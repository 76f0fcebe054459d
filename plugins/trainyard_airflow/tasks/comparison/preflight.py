"""Preflight of a comparison: the check of all its trainings (cells) before any of them costs money."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainyard.installation import TRAINING_SCRIPTS
from trainyard.specs.comparison_conf import ComparisonConf
from trainyard_airflow.tasks.comparison.jobs import comparison_findings
from trainyard_airflow.tasks.end_to_end.preflight import PreflightOperator, run_state
from trainyard_airflow.tasks.shared.run_state import RunState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow.sdk import Context

    from trainyard.errors import Finding
    from trainyard.planning.auto_plan import AutoChoice
    from trainyard.planning.comparison_plan import ComparisonPlan
    from trainyard.specs.run_conf import RunConf

CELL_RETRIES = 1
"""Retries of a cell whose instances were lost; each retry may pay for one more attempt."""


class ComparisonPreflightOperator(PreflightOperator):
    """Checks a comparison's conf, cells, code, account and data, and logs its largest cost.

    Returns the `RunState`.
    """

    def resolve(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], AutoChoice | None]:
        """Return (the unchanged params, None): a comparison has no automatic choices."""
        return dict(params), None

    def conf(self, params: Mapping[str, Any]) -> ComparisonConf:
        """Return the conf of a comparison with these params.

        Raises:
            SpecError: the params are invalid; it lists all findings.
        """
        return ComparisonConf.from_mapping(params)

    def plan(self, params: Mapping[str, Any]) -> ComparisonPlan:
        """Return the plan of all cells.

        Raises:
            SpecError: cells are invalid; the error lists the faults of all cells.
            BudgetExceededError: the largest cost of all cells together exceeds the budget.
        """
        from trainyard.planning.comparison_plan import (
            plan_comparison,
        )  # a DAG file imports this module

        return plan_comparison(params, job_attempts=CELL_RETRIES + 1)

    def findings(self, params: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield the findings on the cells' trainings, from specs, linter and scripts."""
        yield from comparison_findings(params, scripts=TRAINING_SCRIPTS)

    def quota_findings(self, conf: Any) -> Iterator[Finding]:  # noqa: ARG002  # as preflight asks
        """Yield nothing: a cell that exceeds the quota waits until other cells end."""
        yield from ()

    def limit_findings(
        self,
        conf: Any,  # noqa: ARG002  # as preflight asks
        place: Mapping[str, str],  # noqa: ARG002
        *,
        ceiling_usd: float | None,
    ) -> list[Finding]:
        """Return a finding if the whole comparison can cost more than the connection's limit.

        If there is a limit, an unknown cost is a finding, too. The limits on single jobs are checked separately,
        for each cell.
        """
        return list(self.clients.job_limits.cost_findings(ceiling_usd))

    def post_execute(self, context: Context, result: Any = None) -> None:
        """Do nothing: a comparison has no search to skip."""

    def _state(
        self, context: Context, conf: Any, plan: Any, place: Mapping[str, str], region: str
    ) -> RunState[RunConf]:
        self.log_cost(plan, budget_usd=conf.run.budget_usd)
        self.log.info("%d trainings: %s", len(plan.cells), ", ".join(c.name for c in plan.cells))
        return run_state(
            context,
            plan.sharding,
            plan=plan.to_dict(),
            place=place,
            region=region,
            deployment=self.clients.deployment,
        )


class ListCellsOperator(BaseOperator):
    """Returns the cells of preflight's plan as a list.

    This is a separate task, because Airflow can map a task only over the whole result of another task. A cell is
    one training of the comparison: a strategy on a number of ranks.
    """

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Return `Cell.to_dict()` of each cell."""
        cells: list[dict[str, Any]] = RunState.of(context).plan["cells"]
        return cells
