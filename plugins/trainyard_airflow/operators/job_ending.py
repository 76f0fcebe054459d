"""`EndingJobTask`: what a task makes of its ended job: a result, the next rung of its ladder, or an error."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from trainyard.cost.job_cost import spot_line
from trainyard.errors import (
    CapacityError,
    QuotaExceededError,
    SpotInterruptionError,
    TrainingRunError,
)
from trainyard.sagemaker_api.failures import (
    NO_CAUSE,
    cause_rank,
    failure_error,
    names_exception,
    telling_lines,
)
from trainyard_airflow.hooks.redaction import masked, secret_forms, spec_secrets
from trainyard_airflow.operators.job_waiting import WaitingJobTask
from trainyard_airflow.operators.task_memory import TaskMemory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow.sdk import Context

    from trainyard.sagemaker_api.snapshot import JobSnapshot

FAILED_JOB_XCOM_KEY = "failed_job"

_LACKS_CAPACITY = (CapacityError, QuotaExceededError, SpotInterruptionError)
_MOST_CHILDREN = 8


class EndingJobTask(WaitingJobTask):
    """Tells how its job ended, on which capacity it and its earlier attempts stood, and what is to follow."""

    def place(
        self,
        context: Context,  # noqa: ARG002
        earlier: Sequence[JobSnapshot],  # noqa: ARG002
        *,
        full_rungs: Sequence[int] = (),  # noqa: ARG002
    ) -> dict[str, Any]:
        """Return on which capacity the job after `earlier` stands, as facts for its result; nothing to choose here.

        Raises:
            BudgetExceededError: the task may not pay for another job.
        """
        return {}

    def place_of(
        self,
        context: Context,  # noqa: ARG002
        job: JobSnapshot,  # noqa: ARG002
        earlier: Sequence[JobSnapshot],  # noqa: ARG002
    ) -> dict[str, Any]:
        """Return the capacity facts of an already submitted job, in the form that `place` returns."""
        return {}

    def judged(self, snapshot: JobSnapshot, error: TrainingRunError) -> TrainingRunError:  # noqa: ARG002
        """Return the error of a job that did not complete, told more exactly where there is more to know."""
        return error

    def hands_on(self, snapshot: JobSnapshot) -> bool:  # noqa: ARG002
        """Return whether a stopped job's result so far is the task's result: never, unless Trainyard cut it short."""
        return False

    def completed(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return what the task returns once its job has completed: the job's result, unless there is more to do."""
        return result

    def _ended(
        self,
        context: Context,
        snapshot: JobSnapshot,
        facts: dict[str, Any],
        *,
        was_attached: bool = False,
    ) -> dict[str, Any]:
        """Return the completed job's result; raise the error of any other end.

        A job that this start only attached to, and that a kill of the task's earlier try stopped, is no end: a
        cleared task starts again before its old trigger has stopped the old job.
        """
        self._waiting_for = None
        self.note_end(context, snapshot)
        if was_attached and snapshot.status == "Stopped" and self.jobs.was_killed(snapshot.arn):
            self.log.info("Job %s belonged to a killed try: next attempt", snapshot.name)
            return self._run(context)
        attempt = int(facts["attempt"])
        self.announce(context, snapshot.name, facts, output=snapshot.output_path)
        described = (self.jobs.describe(self.name_of(context, each)) for each in range(1, attempt))
        earlier = [each for each in described if each is not None]
        result = {
            **snapshot.to_dict(),
            **facts,
            "job_name": snapshot.name,
            "earlier_attempts": [
                {**job.to_dict(), **self.place_of(context, job, earlier[:index])}
                for index, job in enumerate(earlier)
            ],
        }
        if line := spot_line(result):
            self.log.info("Job %s: %s", snapshot.name, line)
        if snapshot.succeeded or (snapshot.status == "Stopped" and self.hands_on(snapshot)):
            self.log.info("Job %s %s", snapshot.name, snapshot.status.lower())
            return self.completed(context, result)
        return self._failed(context, snapshot, result, earlier)

    def _failed(
        self,
        context: Context,
        snapshot: JobSnapshot,
        result: dict[str, Any],
        earlier: Sequence[JobSnapshot],
    ) -> dict[str, Any]:
        """Go on to the next rung where the job got no capacity and there is one; else raise its error."""
        attempt, memory = int(result["attempt"]), TaskMemory(context)
        lines = self._telling_log(snapshot.name)
        failed = {**result, "log_tail": telling_lines(lines)}
        context["ti"].xcom_push(key=FAILED_JOB_XCOM_KEY, value=failed)
        where = f"log group {self.api.log_group}, above in this log"
        cause = self.jobs.stop_cause(snapshot.arn) if snapshot.status == "Stopped" else None
        error = failure_error(snapshot, log_lines=lines, log_hint=where, stopped_for=cause)
        if isinstance(error, _LACKS_CAPACITY) and result.get("is_last_rung") is False:
            place = self.place(context, [*earlier, snapshot])
            if place["rung"] > result["rung"]:
                self.log.warning("%s", error.what)
                memory.note_reported(attempt)
                return self._run(context)
        judged = self.judged(snapshot, error)
        memory.note_reported(
            attempt
        )  # Last: what raises before it must not pass for a reported failure.
        raise judged

    def _telling_log(self, name: str) -> Sequence[str]:
        """Return the lines that tell why the job failed: of its own log, unless other jobs did its work."""
        return self._own_log(name)

    def _own_log(self, name: str) -> Sequence[str]:
        """Return the last lines of the host whose log names the cause, else of the one that ended last."""
        from trainyard_airflow.hooks.job_logs import last_lines

        ends = last_lines(self.clients.client("logs"), group=self.api.log_group, job_name=name)
        if not ends:
            return ()
        telling = min(ends, key=lambda each: cause_rank(each.lines))
        if cause_rank(telling.lines) == NO_CAUSE:
            telling = ends[-1]
        secrets = secret_forms(spec_secrets(self.spec))
        return [masked(line, secrets) for line in telling.lines]

    def _telling_log_of(self, failed: Iterable[tuple[str, str | None]]) -> Sequence[str]:
        """Return the last lines and the reason of the first job that names what was raised, else of the first.

        Args:
            failed: (name, failure reason) of jobs that a job without a log of its own ran.
        """
        logs = (
            [*self._own_log(name), *([reason] if reason else [])]
            for name, reason in islice(failed, _MOST_CHILDREN)
        )
        first: Sequence[str] = ()
        for lines in logs:
            if names_exception(lines):
                return lines
            first = first or lines
        return first
