"""Last task of a run: its report as a page and as data, even if other tasks failed."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from trainyard.errors import SpecError
from trainyard.runs.builder import build_run_record
from trainyard.runs.evaluation_metrics import metrics_of
from trainyard.runs.notifier import failure_notice, stop_notice
from trainyard.runs.record import MoneyStop, RunRecord
from trainyard.runs.run_note import run_figures, run_image, run_note
from trainyard.specs.monitoring import Notifications
from trainyard.specs.reading import read_spec
from trainyard.task_ids import TaskId
from trainyard_airflow.operators.register_model import ARTIFACT_SHA256
from trainyard_airflow.tasks.end_to_end.jobs import EVALUATION_FILE
from trainyard_airflow.tasks.end_to_end.search_account import (
    SearchAccount,
    conf_as_trained,
    write_search_account,
)
from trainyard_airflow.tasks.shared.closing_report import ClosingReportOperator, unsettled_names
from trainyard_airflow.tasks.shared.leftover_jobs import stop_leftover_jobs
from trainyard_airflow.tasks.shared.output_archive import lines_in_archive
from trainyard_airflow.tasks.shared.run_facts import TaskFacts, first_failure, gather, gather_failed
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.run_state import RunState, notifier_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.sdk import Context

    from trainyard.runs.ledger import Ledger
    from trainyard.runs.record import JobRecord
    from trainyard_airflow.hooks.aws_clients import AwsClients
    from trainyard_airflow.tasks.end_to_end.evidence import Proof

log = logging.getLogger(__name__)

_TASKS = (
    TaskId.PREFLIGHT,
    TaskId.SHARD,
    TaskId.SMOKE_TEST,
    TaskId.TUNE,
    TaskId.TRAIN,
    TaskId.WATCH_RULES,
    TaskId.EVALUATE,
    TaskId.REGISTER,
)
MARKED_FAILED = "the run was marked failed before all of its tasks had run"
_METRICS_FILE = "metrics.jsonl"
_MODEL_FILE = "model.tar.gz"
_OUTPUT_FILE = "output.tar.gz"


class ReportOperator(ClosingReportOperator):
    """Writes the report of its run to S3, even if the run failed.

    Files below the report's prefix, if the run has their data:

    | File | Content |
    |---|---|
    | `report.html`, `report.json` | the report |
    | `tuning.json`, `trials.parquet` | the search |
    | `continuity.json` | continuity of the training; `training_log.jsonl.gz` and `index.json` are its evidence |
    | `training_log.incomplete.jsonl.gz` | the lines of a training log that could not be read to its end |
    | `rules.json` | findings of the rules |
    | `profile.html`, `profile.json` | time profile of the training; `statistics/` has its source |

    The task first stops jobs of this run that still run although their tasks have ended, for example because a trigger
    was never started. It then waits up to three minutes for the end of everything in the run's ledger.

    Returns `report_html`, `report_json`, the run's `status`, its `note` for Airflow's lists, `cost_usd`, `figures` and
    `image` for the fleet page, the address of its `ledger`, and the names of its `unsettled` entries.
    """

    def __init__(self, *, trial_tasks: Sequence[str] = (), **kwargs: Any) -> None:
        """Create the task.

        Args:
            trial_tasks: ids of the tasks that are mapped over a search's trials.
            kwargs: arguments of the base class.
        """
        super().__init__(**kwargs)
        self.trial_tasks = tuple(trial_tasks)

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the addresses of the report, and the run's status, note, cost, figures and ledger.

        Raises:
            AirflowSkipException: preflight failed, and the report cannot be written.
            SpecError: neither the run nor the connection names a bucket to write to.
            RejectedRequestError: S3 rejected the report.
        """
        own = [each for each in _TASKS if context["dag"].has_task(each)]
        gathered = [*gather(context, own), *gather_failed(context, besides=own)]
        facts = {each.task_id: each for each in gathered}
        asked = (facts[TaskId.PREFLIGHT].result or {}).get("conf") or context["params"]
        if not asked.get("tune"):  # the run has no search: its task was skipped, or never reached
            facts.pop(TaskId.TUNE, None)
        if asked.get("smoke_hyperparameters") is None:
            facts.pop(TaskId.SMOKE_TEST, None)
        state = facts[TaskId.PREFLIGHT].result
        with self._unless_preflight_failed(state):
            return self._reported(context, facts, self._paths(context, state))

    def _reported(
        self, context: Context, facts: dict[str, TaskFacts], paths: RunPaths
    ) -> dict[str, Any]:
        from trainyard.bill.reconciliation import awaiting_bill
        from trainyard.runs.report.page import render_report_html
        from trainyard_airflow.hooks.job_spans import describe_task

        self._stop_leftover_jobs(facts)
        state = facts[TaskId.PREFLIGHT].result
        ledger = self._closed_ledger(context, paths, state=state)
        record = self._record(context, facts, paths, ledger)
        if self.clients.has_console:  # the engine sends no bill
            record = awaiting_bill(record, deployment=self.clients.deployment)
        html, data = paths.report_html, paths.report_json
        self._write(render_report_html(record), record.to_json(), html_uri=html, json_uri=data)
        self.log.info("Run %s %s; report: %s", record.run_id, record.status, html)
        describe_task(_trace_attributes(record, report=html))
        self._notify_failure(context, facts, record, paths, report=html)
        notifications = ((state or {}).get("conf") or {}).get("notifications")
        notify_stop(self.clients, record, notifications, paths=paths, report=html)
        self._keep_measurement(record, facts, paths)
        return {
            "report_html": html,
            "report_json": data,
            "status": record.status,
            "note": run_note(record),
            "cost_usd": record.cost.get("total_usd"),
            "figures": run_figures(record),
            "image": run_image(record),
            "ledger": paths.ledger,
            "unsettled": unsettled_names(ledger),
        }

    def _keep_measurement(
        self, record: RunRecord, facts: Mapping[str, TaskFacts], paths: RunPaths
    ) -> None:
        """Store what was measured in the run and its jobs, such as durations, for the estimates of later runs.

        A failure is logged as a warning.
        """
        from trainyard.runs.measured import run_measurement
        from trainyard_airflow.hooks.measurements import measurements_of
        from trainyard_airflow.hooks.refusals import faults_logged

        state = facts[TaskId.PREFLIGHT].result
        if not state:
            return
        with faults_logged(self.log, "Later estimates do not use this run"):
            conf = RunState.from_dict(state).conf
            measured = run_measurement(record, conf)
            if measured:
                folder = measurements_of(self.clients.client("s3"), conf, uri=paths.measurements)
                folder.write(measured)

    def _stop_leftover_jobs(self, facts: dict[str, TaskFacts]) -> None:
        state = facts[TaskId.PREFLIGHT].result
        if state:  # without it no task has come to a job
            unfinished = [each.task_id for each in facts.values() if not each.result]
            stop_leftover_jobs(
                self.clients,
                RunPaths(**state["paths"]),
                task_ids=unfinished,
                trial_tasks=self.trial_tasks,
                num_mapped=int(state["conf"].get("tuning_max_parallel_jobs", 0)),
            )

    def _record(
        self,
        context: Context,
        facts: dict[str, TaskFacts],
        paths: RunPaths,
        ledger: Ledger | None,
    ) -> RunRecord:
        state = facts[TaskId.PREFLIGHT].result or {}
        dataset = _result_of(facts, TaskId.SHARD)
        training = facts[TaskId.TRAIN].result or facts[TaskId.TRAIN].failed_job or {}
        dag_run: Any = context["dag_run"]
        found_at = dataset.get("dataset_uri")
        index = self._json(f"{found_at}/index/index.json") if found_at else None
        is_model = (
            training.get("succeeded") or training.get("cap_stop") or training.get("idle_stop")
        )
        artifact = training.get("model_artifact") if is_model else None
        registered = _result_of(facts, TaskId.REGISTER)
        sha256 = registered.get(ARTIFACT_SHA256) or (
            self.objects.sha256(artifact) if artifact else None
        )
        search = self._search(facts, state.get("conf") or {}, paths)
        jobs = [
            record
            for each in facts.values()
            for record in (
                search.jobs
                if each.task_id == TaskId.TUNE
                else each.job_records(
                    artifact_sha256=sha256 if each.task_id == TaskId.TRAIN else None
                )
            )
        ]
        tune = facts.get(TaskId.TUNE)
        asked = state.get("conf") or dict(context["params"])
        conf = conf_as_trained(asked, tune.result if tune else None)
        watch = facts.get(TaskId.WATCH_RULES)
        has_failed_watch = watch is not None and watch.state == "failed"
        proof = self._proof(jobs, index, conf, paths, has_failed_watch=has_failed_watch)
        known = RunRecord(
            dag_id=context["ti"].dag_id,
            run_id=context["ti"].run_id,
            run_type=str(getattr(dag_run.run_type, "value", dag_run.run_type)),
            started_at=dag_run.start_date.timestamp() if dag_run.start_date else None,
            ended_at=time.time(),
            conf=conf,
            plan=state.get("plan") or {},
            evaluation=self._evaluation(_result_of(facts, TaskId.EVALUATE), paths) or {},
            code_sha256=(training.get("code") or {}).get("sha256"),
            continuity=proof.continuity.to_dict(),
            rules=proof.rules,
            profile=self._profile(training, conf, paths),
            tuning=search.document,
            ledger=None if ledger is None else ledger.to_dict(),
            verdict=training.get("verdict"),
            cap_stop=_stop(training, "cap_stop"),
            idle_stop=_stop(training, "idle_stop"),
            failure=first_failure(list(facts.values()))
            or ({"what": MARKED_FAILED} if _was_marked_failed(context, facts) else None),
        )
        return build_run_record(
            known,
            tasks=[each.to_task() for each in facts.values()],
            jobs=jobs,
            dataset_uri=dataset.get("dataset_uri"),
            shard_index=index,
            was_dataset_reused=bool(dataset.get("was_reused")),
            metric_lines=list(self._metric_lines(training)),
            model=registered,
        )

    def _search(
        self, facts: dict[str, TaskFacts], conf: Mapping[str, Any], paths: RunPaths
    ) -> SearchAccount:
        return write_search_account(
            self.clients, self.objects, conf=conf, paths=paths, facts=facts.get(TaskId.TUNE)
        )

    def _proof(
        self,
        jobs: list[JobRecord],
        index: dict[str, Any] | None,
        conf: Mapping[str, Any],
        paths: RunPaths,
        *,
        has_failed_watch: bool,
    ) -> Proof:
        from trainyard_airflow.tasks.end_to_end.evidence import write_proof

        return write_proof(
            self.clients.client("logs"),
            self.objects,
            jobs=[job for job in jobs if job.task_id == TaskId.TRAIN],
            shard_index=index,
            conf=conf,
            to=paths.report,
            output=paths.output,
            has_failed_watch=has_failed_watch,
        )

    def _notify_failure(
        self,
        context: Context,
        facts: Mapping[str, TaskFacts],
        record: RunRecord,
        paths: RunPaths,
        *,
        report: str,
    ) -> None:
        """Send a message about the run's failure, if any, to the topic in the conf's `notifications`."""
        state = facts[TaskId.PREFLIGHT].result or {}
        task = facts.get(str((record.failure or {}).get("task_id")))
        notify_failure(
            self.clients,
            record.failure,
            notifications=(state.get("conf") or context["params"]).get("notifications"),
            paths=paths,
            try_number=int((task.started or {}).get("try_number", 1)) if task else 1,
            report=report,
        )

    def _profile(
        self, training: Mapping[str, Any], conf: Mapping[str, Any], paths: RunPaths
    ) -> dict[str, Any] | None:
        """Write the profile and return its summary; None if no training ran, or if it stores no statistics in S3."""
        from trainyard_airflow.tasks.end_to_end.profile import write_profile

        return write_profile(
            self.clients.client("s3"),
            training=training,
            conf=conf,
            run_id=paths.run_id,
            to=paths.report,
        )

    def _metric_lines(self, training: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines of metrics.jsonl from the job's output.tar.gz or, without it, from its newest checkpoint."""
        artifact = str(training.get("model_artifact") or "")
        if artifact.endswith(_MODEL_FILE):
            uri = artifact.removesuffix(_MODEL_FILE) + _OUTPUT_FILE
            if self.objects.exists(uri):
                with self.objects.stream(uri) as stream:
                    yield from lines_in_archive(stream, name=_METRICS_FILE)
                return
        checkpoints = training.get("checkpoint_s3_uri")
        if checkpoints:
            newest = self.objects.newest(f"{checkpoints.rstrip('/')}/", name=_METRICS_FILE)
            if newest:
                yield from self.objects.read(newest).decode(errors="replace").splitlines()

    def _evaluation(
        self, result: Mapping[str, Any] | None, paths: RunPaths
    ) -> dict[str, Any] | None:
        """Return the content of evaluation.json, or the metrics of a user's script or task; None if there are none."""
        if not result or not isinstance(result, dict):
            return None
        if "evaluation_uri" in result and _is_of_ours(result):
            return self._json(str(result["evaluation_uri"]))
        if "metrics" in result or not _is_of_ours(result):
            return {"metrics": metrics_of(result)}
        return self._json(f"{paths.evaluation}/{EVALUATION_FILE}")

    def _json(self, uri: str) -> dict[str, Any] | None:
        document: dict[str, Any] | None = self.objects.json_or_none(uri)
        if document is None:
            self.log.warning("There is no %s, so the report has no such data", uri)
        return document


def notify_failure(
    clients: AwsClients,
    failure: Mapping[str, Any] | None,
    *,
    notifications: Mapping[str, Any] | None,
    paths: RunPaths,
    try_number: int,
    report: str,
) -> bool:
    """Notify the conf's topic of a failure; return whether a message was sent. Never raises.

    Args:
        clients: clients of the connection.
        failure: the failed task's `task_id`, with the fields of its error from `TrainingRunError.to_dict()`;
            None if the run did not fail.
        notifications: the conf's field `notifications`; None = no message. The field may be invalid, because a
            run that preflight rejected is reported, too.
        paths: S3 prefixes of the run.
        try_number: try of the failed task.
        report: the report's address.
    """
    from trainyard_airflow.hooks.notifications import notify

    if failure is None or not notifications:
        return False
    try:
        notifier = notifier_of(read_spec(Notifications, notifications), paths)
    except SpecError as error:  # that may be why the run failed
        log.warning("No message is sent about the run's failure: %s", error)
        return False
    notice = failure_notice(failure, try_number=try_number, report=report)
    return notify(clients, notifier, notice)


def notify_stop(
    clients: AwsClients,
    record: RunRecord,
    notifications: Mapping[str, Any] | None,
    *,
    paths: RunPaths,
    report: str,
) -> bool:
    """Send a message about a training that was stopped to limit its cost; return whether the message was sent.

    The message goes to the SNS topic in the conf. No message is sent if the training was not stopped in this
    way, or if the conf has no `notifications`.

    Args:
        clients: clients of the connection.
        record: the run's record.
        notifications: the conf's field `notifications`, checked by preflight.
        paths: S3 prefixes of the run.
        report: the report's address.
    """
    from trainyard_airflow.hooks.notifications import notify

    stop = record.cap_stop or record.idle_stop
    if not stop or not notifications:
        return False
    notice = stop_notice(
        stop,
        by="its cost cap" if record.cap_stop else "idle accelerators",
        run_cost_usd=record.cost.get("total_usd"),
        model=record.model_package_arn,
        report=report,
    )
    return notify(clients, notifier_of(read_spec(Notifications, notifications), paths), notice)


def _trace_attributes(record: RunRecord, *, report: str) -> dict[str, Any]:
    """Return the run's result as attributes for the OpenTelemetry span of the run's last task."""
    return {
        "trainyard.run.status": record.status,
        "trainyard.run.cost_usd": record.cost.get("total_usd"),
        "trainyard.run.goodput": (record.goodput or {}).get("share"),
        "trainyard.run.report": report,
        "trainyard.model_package_arn": record.model_package_arn,
    }


def _was_marked_failed(context: Context, facts: Mapping[str, TaskFacts]) -> bool:
    """Return whether the run was marked failed while none of its tasks was running.

    Airflow then skips the task `outcome`. It also skips `outcome` in two cases that are not failures: a rule ended the
    training, or a task skipped itself, as `register` does for a model that is not good enough.
    """
    if not context["dag"].has_task(TaskId.OUTCOME):
        return False
    (outcome,) = gather(context, [TaskId.OUTCOME])
    ended_by_rule = (facts[TaskId.TRAIN].result or {}).get("verdict")
    has_skipped_itself = any(each.state == "skipped" and each.started for each in facts.values())
    return outcome.state == "skipped" and not ended_by_rule and not has_skipped_itself


def _result_of(facts: Mapping[str, TaskFacts], task_id: TaskId) -> Mapping[str, Any]:
    """Return a task's result; empty if there is no such task, or if it returned no mapping."""
    result = facts[task_id].result if task_id in facts else None
    return result if isinstance(result, dict) else {}


def _is_of_ours(result: Mapping[str, Any]) -> bool:
    """Return whether the result has the form that Trainyard's evaluation tasks return.

    Such a result has either the snapshot of an evaluation job, or `measured_by`: the name of the training job
    that has already evaluated the model (see `EvaluationJobOperator`). A result of any other form comes from a
    user's own task.
    """
    return "measured_by" in result or {"job_name", "kind"} <= result.keys()


def _stop(training: Mapping[str, Any], key: str) -> MoneyStop | None:
    return MoneyStop(**training[key]) if training.get(key) else None
