"""`ClosingReportOperator`: base of a run's last task, which closes the run's ledger and writes its report."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trainyard.errors import TrainingRunError
from trainyard_airflow.links import ReportLink
from trainyard_airflow.operators.connected import ConnectedOperator
from trainyard_airflow.operators.sagemaker_job import JOB_CONNECTION_XCOM_KEY
from trainyard_airflow.tasks.shared.run_paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow.sdk import Context

    from trainyard.runs.ledger import Ledger
    from trainyard_airflow.hooks.ledger import RunLedger

log = logging.getLogger(__name__)

# A stopped job may take the service's 120 s between SIGTERM and SIGKILL, and an upload.
CLOSING_LIMIT_S = 180.0
_POLL_S = 2.0


class ClosingReportOperator(ConnectedOperator):
    """Base of tasks that write a run's report, even if earlier tasks failed."""

    ui_color = "#f0f0f0"
    operator_extra_links = (ReportLink(),)

    def pre_execute(self, context: Context) -> None:
        """Push the connection's id and region as an XCom.

        The pages in Airflow's UI read the report with this connection.
        """
        value = {"aws_conn_id": self.aws_conn_id, "region_name": self.region_name}
        context["ti"].xcom_push(key=JOB_CONNECTION_XCOM_KEY, value=value)

    def _paths(self, context: Context, state: Mapping[str, Any] | None) -> RunPaths:
        """Return the run's addresses from preflight's `state`, or from the params if there is no state.

        Raises:
            SpecError: there is no state, and the bucket cannot be used. Either the params and the connection name no
                bucket, or another Airflow has claimed it.
        """
        from trainyard_airflow.hooks.bucket_claim import claim_bucket

        if state:
            return RunPaths(**state["paths"])
        ti, params = context["ti"], context["params"]
        bucket = self.clients.bucket(params.get("bucket"))
        claim_bucket(self.clients, bucket)
        return RunPaths(
            bucket=bucket,
            prefix=str(params.get("prefix") or "trainyard"),
            dag_id=ti.dag_id,
            run_id=ti.run_id,
            deployment=self.clients.deployment,
        )

    @contextmanager
    def _unless_preflight_failed(self, state: Mapping[str, Any] | None) -> Iterator[None]:
        """Skip the task if preflight failed and the body of the `with` statement cannot write the report.

        Args:
            state: preflight's result; empty or None if it failed.

        Raises:
            AirflowSkipException: preflight failed, and the report cannot be written; preflight's error has the
                reason.
            TrainingRunError: the report cannot be written although preflight succeeded.
            BotoCoreError: AWS did not answer, although preflight succeeded.
        """
        from airflow.sdk.exceptions import AirflowSkipException
        from botocore.exceptions import BotoCoreError

        try:
            yield
        except (TrainingRunError, BotoCoreError) as error:
            if state:
                raise
            self.log.warning("No report is written; preflight's error has the reason: %s", error)
            text = "no report is written: preflight failed, and its error has the reason"
            raise AirflowSkipException(text) from None

    def _closed_ledger(
        self, context: Context, paths: RunPaths, *, state: Mapping[str, Any] | None = None
    ) -> Ledger | None:
        """Return the ledger once everything in it has ended, or after three minutes; None if it cannot be read.

        If the run has a team, this method also counts the cost in the ledger against the team's budget.

        Args:
            context: the task's context.
            paths: addresses of the run.
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
        from trainyard_airflow.hooks.refusals import faults_logged
        from trainyard_airflow.hooks.team_spend import TeamSpend, run_spend

        with faults_logged(self.log, "The cost of this run is not counted for its team"):
            spend = run_spend(self.clients, context, state=state)
            if spend is not None:
                TeamSpend(self.clients).close(spend, ledger)

    def _write(self, page: str, data: str, *, html_uri: str, json_uri: str) -> None:
        """Write the report as a page and as data.

        Args:
            page: content of the HTML file.
            data: content of the JSON file.
            html_uri: S3 address of the page.
            json_uri: S3 address of the data.

        Raises:
            RejectedRequestError: S3 rejected the write.
        """
        self.objects.write_json(json_uri, data)
        self.objects.write(html_uri, page.encode(), content_type="text/html; charset=utf-8")


def closed_ledger(
    ledger: RunLedger,
    *,
    limit_s: float = CLOSING_LIMIT_S,
    pause: Callable[[float], None] = time.sleep,
) -> Ledger | None:
    """Return the ledger once all its entries are settled, or after `limit_s`; None if it cannot be read.

    Warm pools of the run's jobs are released, because the run starts no further jobs.

    Args:
        ledger: the run's ledger.
        limit_s: maximum wait, seconds.
        pause: sleeps for some seconds between two reads.
    """
    from botocore.exceptions import BotoCoreError

    deadline = time.monotonic() + limit_s
    try:
        while (
            not (now := ledger.reconciled(releases_pools=True)).is_settled
            and time.monotonic() < deadline
        ):
            names = ", ".join(each.name for each in now.unsettled)
            log.info("Waiting for the end of %s", names)
            pause(_POLL_S)
    except (TrainingRunError, BotoCoreError) as error:
        log.warning("The run's ledger %s cannot be read: %s", ledger.uri, error)
        return None
    for each in now.unsettled:
        log.error("The %s %s may still cost money: stop it by hand", each.kind, each.name)
    return now


def unsettled_names(ledger: Ledger | None) -> list[str] | None:
    """Return the names of entries that may still cost money; None if the ledger could not be read."""
    return None if ledger is None else [each.name for each in ledger.unsettled]
