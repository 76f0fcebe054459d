"""Report task of an `autopilot_tabular` run: writes the results as a page and as data, even if the run failed."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from trainyard.errors import TrainingRunError
from trainyard.runs.tabular.record import TabularRecord
from trainyard.task_ids import TaskId
from trainyard_airflow.tasks.automl import specs
from trainyard_airflow.tasks.shared.closing_report import ClosingReportOperator, unsettled_names
from trainyard_airflow.tasks.shared.leftover_jobs import stop_leftover_jobs
from trainyard_airflow.tasks.shared.run_facts import first_failure, gather

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from trainyard.runs.ledger import Ledger
    from trainyard_airflow.tasks.shared.run_facts import TaskFacts
    from trainyard_airflow.tasks.shared.run_paths import RunPaths

_TASKS = (TaskId.PREPARE, TaskId.SEARCH, TaskId.EVALUATE, TaskId.REGISTER)


class AutoMLReportOperator(ClosingReportOperator):
    """Writes `report.html` and `report.json` of its run to S3, also for an incomplete run.

    It first stops jobs of the run that still run although their tasks have ended. It then waits for the end of all
    resources in the run's ledger, at most three minutes.

    Returns `report_html`, `report_json`, the run's `status`, whether the model `beats_baseline` on the test rows,
    `cost_usd`, and the names of the `unsettled` entries of the ledger.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the report, and return the keys that the class docstring lists.

        Raises:
            SpecError: the connection names no bucket to write to, or another Airflow has claimed the bucket.
            RejectedRequestError: S3 rejected the report.
        """
        from trainyard_airflow.hooks.bucket_claim import claim_bucket

        facts = {each.task_id: each for each in gather(context, _TASKS)}
        paths = specs.paths_of(context, self.clients)
        claim_bucket(self.clients, paths.bucket)
        unfinished = [each.task_id for each in facts.values() if not each.result]
        stop_leftover_jobs(self.clients, paths, task_ids=unfinished)
        ledger = self._closed_ledger(context, paths)
        record = self._record(context, facts, paths, ledger)
        html, data = paths.report_html, paths.report_json
        from trainyard.runs.tabular.page import (
            render_tabular_html,  # a DAG file imports this module
        )

        self._write(render_tabular_html(record), record.to_json(), html_uri=html, json_uri=data)
        self.log.info("Run %s %s; report: %s", record.run_id, record.status, html)
        return {
            "report_html": html,
            "report_json": data,
            "status": record.status,
            "beats_baseline": record.beats_baseline,
            "cost_usd": None if ledger is None else ledger.total_usd,
            "unsettled": unsettled_names(ledger),
        }

    def _record(
        self,
        context: Context,
        facts: Mapping[str, TaskFacts],
        paths: RunPaths,
        ledger: Ledger | None,
    ) -> TabularRecord:
        dag_run: Any = context["dag_run"]
        search = facts[TaskId.SEARCH].result
        board = self._json(search["leaderboard_uri"]) if search else None
        explained = search["explainability_uri"] if search else None
        analysis = self._json(f"{explained}/analysis.json") if explained else None
        evaluated = facts[TaskId.EVALUATE].result
        prepared = facts[TaskId.PREPARE].result
        return TabularRecord(
            dag_id=context["ti"].dag_id,
            run_id=context["ti"].run_id,
            started_at=dag_run.start_date.timestamp() if dag_run.start_date else None,
            ended_at=time.time(),
            tasks=[each.to_task() for each in facts.values()],
            conf=dict(context["params"]),
            facts=self._json(f"{specs.data_uri(paths)}/facts/facts.json") if prepared else None,
            search=search,
            candidates=(board or {}).get("candidates", ()),
            importance=_importance(analysis),
            evaluation=self._json(f"{paths.evaluation}/{specs.EVALUATION_FILE}")
            if evaluated
            else None,
            model=facts[TaskId.REGISTER].result,
            ledger=None if ledger is None else ledger.to_dict(),
            failure=first_failure(list(facts.values())),
        )

    def _json(self, uri: str) -> dict[str, Any] | None:
        """Return the JSON object at an S3 address; None, with a warning, if it cannot be read."""
        try:
            document: dict[str, Any] = json.loads(self.objects.read(uri))
        except (TrainingRunError, ValueError) as error:
            self.log.warning("The report has no data of %s: %s", uri, error)
            return None
        return document


def _importance(analysis: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the columns' permutation importance from the content of analysis.json.

    Each item has a column's `name`, `importance` and `std`. The list is empty if `analysis` has
    none.
    """
    found = (analysis or {}).get("explanations", {}).get("permutation_importance", {})
    return list(found.get("global_importance", ()))
