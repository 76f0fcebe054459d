"""`ClosingReportOperator`: the last task of a run, which closes the run's ledger and writes its pages."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trainyard.errors import TrainingRunError
from trainyard_airflow.links import ReportLink
from trainyard_airflow.operators.connected import ConnectedOperator
from trainyard_airflow.tasks.shared.closing_ledger import closed_ledger
from trainyard_airflow.tasks.shared.run_paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow.sdk import Context

    from trainyard.runs.ledger import Ledger


class ClosingReportOperator(ConnectedOperator):
    """Writes what happened, however far the run came."""

    ui_color = "#f0f0f0"
    operator_extra_links = (ReportLink(),)

    def _paths(self, context: Context, state: Mapping[str, Any] | None) -> RunPaths:
        """Return the run's addresses: as preflight's `state` fixed them, or as they would have been.

        Raises:
            SpecError: there is no state, and the connection names no bucket.
        """
        if state:
            return RunPaths(**state["paths"])
        ti, params = context["ti"], context["params"]
        return RunPaths(
            bucket=self.clients.bucket(params.get("bucket")),
            prefix=str(params.get("prefix") or "trainyard"),
            dag_id=ti.dag_id,
            run_id=ti.run_id,
            deployment=self.clients.deployment,
        )

    @contextmanager
    def _unless_preflight_failed(self, state: Mapping[str, Any] | None) -> Iterator[None]:
        """Skip the task if it cannot write where preflight, which failed, has said what is wrong.

        Args:
            state: preflight's result; empty or None if it has none.

        Raises:
            AirflowSkipException: there is no report, and preflight's message is the only one.
            TrainingRunError: the report cannot be written although preflight succeeded.
            BotoCoreError: likewise.
        """
        from airflow.sdk.exceptions import AirflowSkipException
        from botocore.exceptions import BotoCoreError

        try:
            yield
        except (TrainingRunError, BotoCoreError) as error:
            if state:
                raise
            self.log.warning("No report is written; preflight says why the run failed: %s", error)
            text = "no report: preflight failed, and there is nowhere to write"
            raise AirflowSkipException(text) from None

    def _closed_ledger(
        self, context: Context, paths: RunPaths, *, state: Mapping[str, Any] | None = None
    ) -> Ledger | None:
        """Return the ledger once everything in it has ended; None if it cannot be read.

        What the run spent counts against its team's budget from then on.

        Args:
            context: the task's.
            paths: of the run.
            state: preflight's result; None if there is none.
        """
        from trainyard_airflow.hooks.ledger import RunLedger

        ledger = closed_ledger(RunLedger(self.clients, uri=paths.ledger))
        if ledger is not None:
            self._count_spend(context, ledger, state=state)
        return ledger

    def _count_spend(
        self, context: Context, ledger: Ledger, *, state: Mapping[str, Any] | None
    ) -> None:
        from botocore.exceptions import BotoCoreError

        from trainyard_airflow.hooks.team_spend import TeamSpend, run_spend

        try:
            spend = run_spend(self.clients, context, state=state)
            if spend is not None:
                TeamSpend(self.clients).close(spend, ledger)
        except (TrainingRunError, BotoCoreError) as error:
            self.log.warning("What this run spent is not counted for its team: %s", error)

    def _write(self, page: str, data: str, *, html_uri: str, json_uri: str) -> None:
        """Write the page and the same as data.

        Raises:
            RejectedRequestError: the bucket refuses them.
        """
        self.objects.write(json_uri, data.encode(), content_type="application/json")
        self.objects.write(html_uri, page.encode(), content_type="text/html; charset=utf-8")


def unsettled_names(ledger: Ledger | None) -> list[str] | None:
    """Return what may still cost money; None if the ledger could not be read."""
    return None if ledger is None else [each.name for each in ledger.unsettled]
