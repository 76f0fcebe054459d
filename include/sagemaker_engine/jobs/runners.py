"""Runners of an engine's jobs.

The module starts runners, adopts those of the previous engine after a restart, and detects their end.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from sagemaker_engine.jobs import launching, life_cycle
from sagemaker_engine.sandbox.processes import is_alive

if TYPE_CHECKING:
    from sagemaker_engine.state.jobs import JobRow, ResourceKind
    from sagemaker_engine.state.settings import EngineSettings
    from sagemaker_engine.state.store import JobStore

log = logging.getLogger(__name__)

START_LIMIT_S = 60.0
"""Seconds until a runner without a recorded process id counts as failed; a start takes 0.2 s."""


class RunnerCare:
    """Starts runners, and retries or fails the jobs whose runners died."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._began_at = time.monotonic()
        self._launched_at: dict[tuple[ResourceKind, str], float] = {}

    def launch(self, kind: ResourceKind, name: str, settings: EngineSettings) -> None:
        """Start the runner of a stored job."""
        self._launched_at[kind, name] = time.monotonic()
        launching.launch(kind, name, settings)

    def take_up(self, settings: EngineSettings) -> None:
        """Adopt the runners of the previous engine; retry or fail jobs whose runner died."""
        self._began_at = time.monotonic()
        self._recover(settings)

    def look_after(self, running: list[JobRow], settings: EngineSettings) -> None:
        """Reap ended runners; retry or fail the running jobs whose runner died or never started."""
        launching.reap()
        if any(_is_dead(job) for job in running):
            self._recover(settings)
        for job in running:
            if job.runner_pid is None and self._waits_too_long(job):
                self._fail(job, settings)

    def _recover(self, settings: EngineSettings) -> None:
        for name in launching.recover(self._store, settings, start=self.launch):
            log.warning("job %s failed: its runner died", name)

    def _waits_too_long(self, job: JobRow) -> bool:
        since = self._launched_at.get((job.kind, job.name), self._began_at)
        age_s = time.time() - job.created_at  # A job is stored before its runner is started.
        return min(time.monotonic() - since, age_s) > START_LIMIT_S

    def _fail(self, job: JobRow, settings: EngineSettings) -> None:
        output = settings.job_folder(job.kind, job.name) / "runner.log"
        reason = (
            f"InternalServerError: The job's runner process did not start; see its log {output}."
        )
        after = self._store.update_state(
            job.kind,
            job.name,
            lambda state: life_cycle.finish(
                job.kind, state, status="Failed", at=time.time(), reason=reason
            ),
            when=_is_unclaimed,
        )
        if after.runner_pid is None:
            log.error("%s job %s: %s", job.kind, job.name, reason)


def _is_unclaimed(job: JobRow) -> bool:
    """Return whether the job has not ended and still has no runner.

    The transaction that sets the job to Failed evaluates this function, because a runner may have started since
    the job was read.
    """
    return job.runner_pid is None and not job.is_terminal


def _is_dead(job: JobRow) -> bool:
    return job.runner_pid is not None and not is_alive(job.runner_pid, job.runner_start_ticks)
