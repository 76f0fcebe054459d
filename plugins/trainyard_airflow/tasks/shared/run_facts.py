"""Facts on the tasks of a run for its report: times, states, results and failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.runs.builder import job_record
from trainyard.task_ids import TaskId
from trainyard_airflow.links import LINKS_XCOM_KEY
from trainyard_airflow.operators.person_question import QUESTION_XCOM_KEY
from trainyard_airflow.operators.sagemaker_job import FAILED_JOB_XCOM_KEY, JOB_XCOM_KEY
from trainyard_airflow.tasks.shared.task_notes import FAILURE_XCOM_KEY, STARTED_XCOM_KEY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from airflow.sdk import Context

    from trainyard.runs.record import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """Facts of one task for the run's record; a fact is None if the task did not get that far."""

    task_id: str
    state: str | None
    started: Mapping[str, Any] | None
    duration_s: float | None
    result: Mapping[str, Any] | None
    failure: Mapping[str, Any] | None
    job_name: str | None
    failed_job: Mapping[str, Any] | None
    question: Mapping[str, Any] | None
    links: Mapping[str, str]

    def to_task(self) -> dict[str, Any]:
        """Return the task in the format of `build_run_record`; times are epoch seconds or None."""
        start = (self.started or {}).get("at")
        end = None if start is None or self.duration_s is None else start + self.duration_s
        tries = (self.started or {}).get("try_number", 0)
        return {
            "task_id": self.task_id,
            "state": self.state,
            "start": start,
            "end": end,
            "try_number": tries,
            **(self.question or {}),
        }

    def job_records(self, *, artifact_sha256: str | None) -> Iterator[JobRecord]:
        """Yield the task's jobs, oldest attempt first.

        Args:
            artifact_sha256: SHA-256 of the last attempt's model.tar.gz, stored in that attempt's record; or None.
        """
        result = (
            self.result if isinstance(self.result, Mapping) else {}
        )  # a user's task may return anything
        # The shard task returns a data set, with its job if it needed one.
        last = result if "job_name" in result else result.get("job") or self.failed_job
        if not last or "kind" not in last:
            return
        earlier: Sequence[Mapping[str, Any]] = last.get("earlier_attempts", ())
        for number, snapshot in enumerate(earlier, 1):
            yield job_record(self.task_id, snapshot, attempts=number)
        yield job_record(
            self.task_id,
            last,
            attempts=int(last.get("attempt", len(earlier) + 1)),
            artifact_sha256=artifact_sha256,
            links=self.links,
        )


def gather(context: Context, task_ids: Sequence[str]) -> list[TaskFacts]:
    """Return the facts of the named tasks of this run, in that order."""
    ti: Any = context["ti"]
    crumbs = {each["task_id"]: each for each in _crumbs(ti)}
    return [_facts(ti, {"task_id": each, **crumbs.get(each, {})}) for each in task_ids]


def gather_failed(context: Context, *, besides: Collection[str]) -> list[TaskFacts]:
    """Return the facts of this run's failed tasks, except the tasks in `besides`.

    In the result, each failed instance of a mapped task is named `id[index]`.
    """
    ti: Any = context["ti"]
    failed = (each for each in _crumbs(ti) if each["state"] == "failed")
    return [_facts(ti, each) for each in failed if each["task_id"] not in besides]


def gather_mapped(context: Context, task_id: str) -> dict[int, TaskFacts]:
    """Return the facts of a mapped task's instances by their index; empty before the task was mapped."""
    ti: Any = context["ti"]
    crumbs = (each for each in _crumbs(ti) if each["task_id"] == task_id)
    return {
        each["map_index"]: _facts(ti, each) for each in crumbs if each.get("map_index", -1) >= 0
    }


def _crumbs(ti: Any) -> list[dict[str, Any]]:
    return list(ti.get_task_breadcrumbs(dag_id=ti.dag_id, run_id=ti.run_id))


def _facts(ti: Any, crumb: Mapping[str, Any]) -> TaskFacts:
    task_id, index = crumb["task_id"], crumb.get("map_index", -1)

    def left(key: str = "return_value") -> Any:
        return ti.xcom_pull(task_ids=task_id, key=key, map_indexes=index)

    return TaskFacts(
        task_id=task_id if index < 0 else f"{task_id}[{index}]",
        state=crumb.get("state"),
        started=left(STARTED_XCOM_KEY),
        duration_s=crumb.get("duration"),
        result=left(),
        failure=left(FAILURE_XCOM_KEY),
        job_name=left(JOB_XCOM_KEY),
        failed_job=left(FAILED_JOB_XCOM_KEY),
        question=left(QUESTION_XCOM_KEY),
        links=left(LINKS_XCOM_KEY) or {},
    )


def first_failure(facts: Sequence[TaskFacts]) -> dict[str, Any] | None:
    """Return the error of the first failed task, with `task_id` and, if known, the job's `log_tail`; or None.

    The task `watch_rules` is skipped, because its failure does not fail the run.
    """
    for each in facts:
        if each.state == "failed" and each.task_id != TaskId.WATCH_RULES:
            error = each.failure or {
                "what": "the task was marked failed, or its worker died: see its log"
            }
            log_tail = (each.failed_job or {}).get("log_tail")
            return {
                "task_id": each.task_id,
                **error,
                **({"log_tail": log_tail} if log_tail else {}),
            }
    return None
