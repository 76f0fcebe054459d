"""The first task: everything that can be wrong is looked at and reported together, before anything is paid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseOperator

from distributed_training.operators.job_code import project_root
from distributed_training.operators.source_check import entry_point_findings
from distributed_training.pipelines.run_jobs import (
    EVALUATION_ENTRY_POINT,
    SOURCE_DIR,
    TRAINING_ENTRY_POINT,
)
from distributed_training.pipelines.run_paths import RunPaths
from distributed_training.pipelines.run_state import RunState
from distributed_training.retry_policy import TrainingRetryPolicy
from include.errors import BudgetExceededError, Finding, FindingsError, Severity, SpecError
from include.planning.run_plan import RunPlan, plan_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow.sdk import Context

    from distributed_training.hooks.aws_clients import AwsClients


T = TypeVar("T")


class PreflightOperator(BaseOperator):
    """Checks a run's conf, code, account and data, and fixes what holds for the whole run.

    Returns the `RunState`, with the plan and its cost ceiling beside the budget.
    """

    ui_color = "#fdf6e3"

    def __init__(self, *, aws_conn_id: str = "aws_default", **kwargs: Any) -> None:
        kwargs.setdefault("retry_policy", TrainingRetryPolicy())
        super().__init__(**kwargs)
        self.aws_conn_id = aws_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the run's state.

        Raises:
            SpecError: everything that is wrong, at once.
            BudgetExceededError: nothing is wrong, but the run could cost more than its budget.
        """
        from distributed_training.hooks.aws_clients import AwsClients, ConnectionArguments

        params = {**context["params"], **triggering_params(context)}
        found = _Findings()
        plan = found.result_of(lambda: plan_run(params))
        clients = AwsClients(ConnectionArguments(aws_conn_id=self.aws_conn_id))
        region = found.result_of(lambda: clients.region)
        place = found.of_account(clients, params) if region else {}
        for entry_point in (TRAINING_ENTRY_POINT, EVALUATION_ENTRY_POINT):
            found.add(entry_point_findings(project_root() / SOURCE_DIR, entry_point))
        for warning in found.warnings:
            self.log.warning("%s", warning)
        found.raise_errors(subject=f"{context['ti'].dag_id} run {context['ti'].run_id}")
        assert plan is not None and region is not None  # noqa: S101, PT018  # else there was an error
        return self._state(context, plan, place, region).to_dict()

    def _state(
        self, context: Context, plan: RunPlan, place: Mapping[str, str], region: str
    ) -> RunState:
        ti, conf = context["ti"], plan.conf
        ceiling = "unknown" if plan.ceiling_usd is None else f"{plan.ceiling_usd:.2f} USD"
        budget = "none" if conf.budget_usd is None else f"{conf.budget_usd:.2f} USD"
        self.log.info("Training can cost at most: %s; budget: %s", ceiling, budget)
        paths = RunPaths(
            bucket=place["bucket"], prefix=conf.prefix, dag_id=ti.dag_id, run_id=ti.run_id
        )
        return RunState(
            conf=conf, paths=paths, role=place["role"], region=region, plan=plan.to_dict()
        )


class _Findings:
    """Collects what is wrong, so that all of it is reported at once."""

    def __init__(self) -> None:
        self.found: list[Finding] = []
        self.over_budget: BudgetExceededError | None = None

    @property
    def warnings(self) -> list[Finding]:
        return [each for each in self.found if each.severity is Severity.WARNING]

    def add(self, findings: Iterable[Finding]) -> None:
        self.found += findings

    def result_of(self, make: Callable[[], T]) -> T | None:
        """Return what `make` returns; None when it found faults, which are kept."""
        try:
            return make()
        except FindingsError as error:
            self.found += error.findings
        except BudgetExceededError as error:
            self.over_budget = error
        return None

    def of_account(self, clients: AwsClients, params: Mapping[str, Any]) -> dict[str, str]:
        """Return the run's bucket and role, having looked at both and at the data source."""
        from distributed_training.hooks import account_check

        bucket = self.result_of(lambda: clients.bucket(params.get("bucket")))
        role = self.result_of(lambda: clients.execution_role(params.get("role")))
        if bucket:
            self.add(account_check.bucket_findings(clients, bucket))
        if role:
            self.add(account_check.role_findings(clients, role))
        if isinstance(params.get("source"), str):
            self.add(account_check.source_findings(clients, params["source"]))
        return {"bucket": bucket or "", "role": role or ""}

    def raise_errors(self, *, subject: str) -> None:
        """Raise what was found, if any of it is an error.

        Raises:
            SpecError: the findings.
            BudgetExceededError: there are none, but the run could cost too much.
        """
        if any(each.severity is Severity.ERROR for each in self.found):
            more = (
                [Finding(where="budget_usd", what=self.over_budget.what)]
                if self.over_budget
                else []
            )
            raise SpecError([*self.found, *more], subject=subject)
        if self.over_budget:
            raise self.over_budget


def triggering_params(context: Context) -> dict[str, Any]:
    """Return the params that came with the asset events that started the run, the last event's winning.

    Whoever announces new data may say where it is: `{"source": "s3://..."}` in the event's extra. A
    conf given by hand starts no run through an asset, so nothing is overridden behind its author's
    back.
    """
    events = context.get("triggering_asset_events") or {}
    extras = [event.extra or {} for each in events.values() for event in each]
    return {
        key: value for extra in extras for key, value in extra.items() if key in context["params"]
    }
