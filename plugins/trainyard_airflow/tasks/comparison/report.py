"""Report task of a comparison: the results of all trainings as page, data and table, also if some failed."""

from __future__ import annotations

import tarfile
import time
from typing import TYPE_CHECKING, Any

from trainyard.errors import TrainingRunError
from trainyard.runs.comparison.findings import findings_of
from trainyard.runs.comparison.measures import Measures, measures_in
from trainyard.runs.comparison.record import ComparisonRecord, cell_record
from trainyard.task_ids import TaskId
from trainyard_airflow.tasks.shared.closing_report import ClosingReportOperator, unsettled_names
from trainyard_airflow.tasks.shared.leftover_jobs import stop_leftover_jobs
from trainyard_airflow.tasks.shared.output_archive import texts_in_archive
from trainyard_airflow.tasks.shared.run_facts import first_failure, gather, gather_mapped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from trainyard.runs.comparison.findings import Findings
    from trainyard.runs.comparison.record import CellRecord
    from trainyard.runs.ledger import Ledger
    from trainyard_airflow.tasks.shared.run_facts import TaskFacts

CELLS = "cells"
_TASKS = (TaskId.PREFLIGHT, TaskId.SHARD)
_MODEL_FILE, _OUTPUT_FILE = "model.tar.gz", "output.tar.gz"


class ComparisonReportOperator(ClosingReportOperator):
    """Writes `comparison.html`, `comparison.json` and `comparison.parquet` to S3, even if the run is incomplete.

    A failed training is in the table with its reason. The task first stops jobs of the run that still run
    although their tasks have ended. It then waits for the end of all resources in the run's ledger, at most
    three minutes.

    Returns `report_html`, `report_json`, `table`, the `status`, `cells` (the numbers of requested and measured
    trainings), `cost_usd`, and the names of the `unsettled` entries of the ledger. It also returns `knees`, a
    list with one sentence for each strategy. Each sentence names the largest number of ranks that is still
    worth its cost.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the addresses and the results of the comparison.

        Raises:
            AirflowSkipException: preflight failed, and the report cannot be written.
            SpecError: neither the run nor the connection names a bucket to write to.
            RejectedRequestError: S3 rejected the report.
        """
        facts = gather(context, _TASKS)
        with self._unless_preflight_failed(facts[0].result):
            return self._reported(context, facts)

    def _reported(self, context: Context, facts: Sequence[TaskFacts]) -> dict[str, Any]:
        mapped = gather_mapped(context, CELLS)
        state = facts[0].result or {}
        cells = (state.get("plan") or {}).get("cells", [])
        paths = self._paths(context, state)
        unfinished = [each.task_id for each in facts if not each.result]
        stop_leftover_jobs(
            self.clients, paths, task_ids=unfinished, trial_tasks=[CELLS], num_mapped=len(cells)
        )
        ledger = self._closed_ledger(context, paths, state=state)
        records = [self._cell(each, mapped.get(index), state) for index, each in enumerate(cells)]
        record = self._record(context, [*facts, *mapped.values()], state, records, ledger)
        findings = findings_of(record)
        written = self._write_comparison(record, findings, to=paths.report)
        for line in _summary_lines(record, findings):
            self.log.info("%s", line)
        self.log.info("Run %s %s; report: %s", record.run_id, record.status, written["report_html"])
        return {
            **written,
            "status": record.status,
            "cells": {"measured": len(record.measured), "asked": len(record.cells)},
            "knees": [each.words for each in findings.knees],
            "ledger": paths.ledger,
            "cost_usd": None if ledger is None else ledger.total_usd,
            "unsettled": unsettled_names(ledger),
        }

    def _cell(
        self, cell: Mapping[str, Any], facts: TaskFacts | None, state: Mapping[str, Any]
    ) -> CellRecord:
        asked = state["plan"]["comparison"]
        job = (facts.result or facts.failed_job) if facts else None
        measures = self._measures(job, asked) if job else Measures()
        return cell_record(
            cell,
            asked,
            job=job,
            task_state=facts.state if facts else None,
            failure=facts.failure if facts else None,
            measures=measures,
        )

    def _measures(self, job: Mapping[str, Any], asked: Mapping[str, Any]) -> Measures:
        """Return the measures in the output.tar.gz of a cell's job.

        They are empty if the job has no such file, or, with a warning, if the file cannot be read.

        Args:
            job: the result of the cell's training task, or its failed job.
            asked: the comparison's conf, from preflight's plan.
        """
        artifact = str(job.get("model_artifact") or "")
        uri = artifact.removesuffix(_MODEL_FILE) + _OUTPUT_FILE
        try:
            if not artifact.endswith(_MODEL_FILE) or not self.objects.exists(uri):
                return Measures()
            with self.objects.stream(uri) as stream:
                files = texts_in_archive(stream, endings=(".jsonl", ".json"))
        except (TrainingRunError, tarfile.TarError, OSError) as error:
            self.log.warning("The comparison has no data of %s: %s", uri, error)
            return Measures()
        is_text = asked.get("model") == "gpt"
        return measures_in(files, units_per_sample=asked["sequence_length"] if is_text else 1)

    def _record(
        self,
        context: Context,
        facts: Sequence[TaskFacts],
        state: Mapping[str, Any],
        cells: Sequence[CellRecord],
        ledger: Ledger | None,
    ) -> ComparisonRecord:
        dag_run: Any = context["dag_run"]
        plan = dict(state.get("plan") or {})
        conf = plan.pop("comparison", None) or dict(context["params"])
        is_empty = not any(each.is_measured for each in cells)
        dataset = next((e.result for e in facts if e.task_id == TaskId.SHARD and e.result), {})
        return ComparisonRecord(
            dag_id=context["ti"].dag_id,
            run_id=context["ti"].run_id,
            started_at=dag_run.start_date.timestamp() if dag_run.start_date else None,
            ended_at=time.time(),
            tasks=[each.to_task() for each in facts],
            cells=tuple(cells),
            conf=conf,
            plan=plan,
            loss_tolerance=float(conf.get("loss_tolerance", 0.01)),
            worthwhile_efficiency=float(conf.get("worthwhile_efficiency", 0.5)),
            dataset_uri=dataset.get("dataset_uri"),
            ledger=None if ledger is None else ledger.to_dict(),
            failure=first_failure(list(facts)) if is_empty else None,
        )

    def _write_comparison(
        self, record: ComparisonRecord, findings: Findings, *, to: str
    ) -> dict[str, str]:
        from trainyard.runs.comparison.page import render_comparison_html
        from trainyard.runs.comparison.table import to_parquet
        from trainyard.tuning.trials import PARQUET

        html, data, table = (f"{to}/comparison.{kind}" for kind in ("html", "json", "parquet"))
        page, content = render_comparison_html(record, findings), record.to_json(findings.to_dict())
        self._write(page, content, html_uri=html, json_uri=data)
        self.objects.write(table, to_parquet(record, findings), content_type=PARQUET)
        return {"report_html": html, "report_json": data, "table": table}


def _summary_lines(record: ComparisonRecord, findings: Findings) -> Sequence[str]:
    from trainyard.runs.comparison.table import table_lines

    return [*table_lines(record, findings), *(f"{k.strategy}: {k.words}" for k in findings.knees)]
