"""One running search: it polls its jobs, stops them if the search ends, and launches the next ones."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from sagemaker_engine.searches.tables import Job, Row
from sagemaker_engine.state.jobs import JobRow, UnknownJobError
from sagemaker_engine.wire.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sagemaker_engine.searches.tables import SearchTables
    from sagemaker_engine.state.jobs import ResourceKind
    from sagemaker_engine.state.settings import EngineSettings
    from sagemaker_engine.state.store import JobStore

log = logging.getLogger(__name__)

ENDING = "Ending"
"""Member of a search's state with its outcome, stored when the search decides to end."""
TRY_AGAIN = frozenset({"ResourceLimitExceeded", "ThrottlingException"})

Request = dict[str, Any]
Result = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchKind:
    """Names and states of one kind of search: tuning jobs or AutoML jobs.

    Attributes:
        noun: name of the kind in the log.
        link: key in a job's stored request under which the ARN of the job's search is stored.
        stopping: keys and values that are set in the state of a search when its stop is requested.
        failed: keys and values that are set in the state of a search when it fails.
        end_key: key in the state under which the time of the end is stored.
    """

    noun: str
    link: str
    stopping: Mapping[str, str]
    failed: Mapping[str, str]
    end_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPorts(Generic[Row, Job]):
    """Access of a search to the engine: its tables, the store of jobs, and functions that create and stop a job.

    Attributes:
        tags_of: returns the tags of an ARN.
        create_job: creates a job. Its arguments are the job's kind, the Create request, the region and the
            search's ARN.
        stop_job: stops the job with a given kind and name.
    """

    tables: SearchTables[Row, Job]
    store: JobStore
    settings: EngineSettings
    clock: Callable[[], float]
    tags_of: Callable[[str], Mapping[str, str]]
    create_job: Callable[[ResourceKind, Request, str, str], None]
    stop_job: Callable[[ResourceKind, str], None]


class SearchNotRunningError(Exception):
    """The search has ended or is already stopping."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the search is in status {status}")
        self.status = status


def request_stop(tables: SearchTables[Row, Job], row: Row, kind: SearchKind, *, at: float) -> None:
    """Request the stop of a search: it launches no more jobs, and its running jobs are stopped.

    Raises:
        SearchNotRunningError: The search has ended or is already stopping.
    """

    def change(state: dict[str, Any]) -> None:
        if state[row.status_key] != "InProgress":
            raise SearchNotRunningError(state[row.status_key])
        state.update(kind.stopping)

    tables.change(row.name, change, at=at, stop=True)


class Search(ABC, Generic[Row, Job]):
    """One running search. Its whole state is in the tables, so that it can resume after a restart."""

    kind: ClassVar[SearchKind]

    def __init__(self, ports: SearchPorts[Row, Job], row: Row) -> None:
        self.ports = ports
        self.row = row

    def advance(self, row: Row) -> bool:
        """Poll the search's jobs once and act on the results; return whether the search has ended.

        `row` is the stored row of the search.
        """
        self.row = row
        polled = [self._poll(job) for job in self.ports.tables.jobs(row.arn)]
        jobs = [job for job in polled if job is not None]
        active = [job for job in jobs if job.result is None]
        ending = self._ending(jobs)
        if ending is None:
            active = self._proceed(jobs, active)
        else:
            for job in active:
                self._stop(job, "the search ends")
        return not active and self._finish(jobs, ending)

    @abstractmethod
    def _request_of(self, job: Job) -> Request:
        """Return the Create request of a job."""

    @abstractmethod
    def _result_of(self, job: Job, ended: JobRow) -> Result:
        """Return the result of a job that has ended."""

    @abstractmethod
    def _failed_result(self, job: Job, *, arn: str, reason: str) -> Result:
        """Return the result of a job that could not be created, or was deleted."""

    @abstractmethod
    def _stop_columns(self, reason: str) -> dict[str, Any]:
        """Return the columns (name -> value) to set in a job's row to record that the search stops the job.

        `reason` is the reason for the stop.
        """

    @abstractmethod
    def _reason_to_end(self, jobs: list[Job]) -> dict[str, Any] | None:
        """Return the outcome of the search if it should end now; None if it continues."""

    @abstractmethod
    def _proceed(self, jobs: list[Job], active: list[Job]) -> list[Job]:
        """Launch the next jobs, and return all active jobs."""

    @abstractmethod
    def _finish(self, jobs: list[Job], ending: dict[str, Any] | None) -> bool:
        """End the search if it should end, and return whether it has ended. Called only while no job is active.

        `ending` is the outcome that `_ending` returned, or None.
        """

    def _poll(self, job: Job) -> Job | None:
        """Update one job of the search and return it, or return None if its row was removed.

        - A job that was not launched is launched. If the search is ending, the job's row is removed instead.
        - A deleted job is recorded as failed.
        - The result of a job that has ended is recorded.
        - If a job's row records a stop, but the job is still in progress, the job is stopped now. This
          happens if the engine ended after it recorded the stop and before it requested the stop.
        """
        if job.result is not None:
            return job
        found = self._job(job)
        if found is None and job.launched_at is None:
            if self.row.stop_requested_at is None and ENDING not in self.row.state:
                return self._launch(job)
            self.ports.tables.forget(self.row.arn, job.number)
            return None
        if found is None:
            return self._fail(job, f"ClientError: The {job.job_kind.value} job was deleted.")
        if found.is_terminal:
            return self._end(job, self._result_of(job, found))
        if job.is_stopped and found.status == "InProgress":
            self.ports.stop_job(job.job_kind, job.job_name)
        return job

    def _job(self, job: Job) -> JobRow | None:
        """Return the engine's row of a job; None if it does not exist or does not belong to this search."""
        try:
            found = self.ports.store.get(job.job_kind, job.job_name)
        except UnknownJobError:
            return None
        return found if found.request.get(self.kind.link) == self.row.arn else None

    def _launch(self, job: Job) -> Job:
        region = self.row.arn.split(":")[3]
        request = self._request_of(job)
        try:
            self.ports.create_job(job.job_kind, request, region, self.row.arn)
        except ServiceError as error:
            if error.code in TRY_AGAIN:
                log.warning("%s waits: %s", job.job_name, error.message)
                return job
            log.warning("%s failed to start: %s", job.job_name, error.message)
            return self._fail(job, f"ClientError: {error.message}")
        self.ports.tables.note(self.row.arn, job.number, launched_at=self.ports.clock())
        log.info("%s: %s", job.job_name, job)
        return job

    def _fail(self, job: Job, reason: str) -> Job:
        arn = f"{self.row.arn.rpartition(':')[0]}:{job.job_kind.value}-job/{job.job_name}"
        return self._end(job, self._failed_result(job, arn=arn, reason=reason))

    def _end(self, job: Job, result: Result) -> Job:
        self.ports.tables.note(self.row.arn, job.number, result=result)
        log.info("%s has ended: %s", job.job_name, result)
        return replace(job, result=result)

    def _stop(self, job: Job, reason: str) -> None:
        if job.is_stopped:
            return
        self.ports.tables.note(self.row.arn, job.number, **self._stop_columns(reason))
        log.info("%s is stopped: %s", job.job_name, reason)
        self.ports.stop_job(job.job_kind, job.job_name)

    def _ending(self, jobs: list[Job]) -> dict[str, Any] | None:
        """Return the outcome of the search if it is ending, otherwise None. A stored outcome does not change."""
        settled: dict[str, Any] | None = self.row.state.get(ENDING)
        if settled is not None:
            return settled
        found = self._reason_to_end(jobs)
        if found is not None:
            log.info("%s %s ends: %s", self.kind.noun, self.row.name, found)
            self._change(lambda state: state.update({ENDING: found}))
        return found

    def _close(self, outcome: Mapping[str, Any]) -> None:
        """Store the outcome and the time of the end."""
        ended = {**outcome, self.kind.end_key: self.ports.clock()}
        self._change(lambda state: state.update(ended))
        log.info("%s %s: %s", self.kind.noun, self.row.name, outcome)

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        self.ports.tables.change(self.row.name, change, at=self.ports.clock())
        self.row = self.ports.tables.get(self.row.name)
