"""Watcher thread of an engine: it sends events of state changes and detects dead runners."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from sagemaker_engine.state.events import state_changes, state_event
from sagemaker_engine.state.jobs import RUNNING_STATUSES, JobQuery, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.services.moto import MotoBackend
    from sagemaker_engine.state.jobs import JobRow
    from sagemaker_engine.state.store import JobStore

log = logging.getLogger(__name__)

POLL_S = 0.2
CARE_S = 1.0


class Watcher:
    """Thread that sends an event for each state change of a job, from `start` to `stop`.

    It polls the store for the changes. About once per second it also calls `care` with the running jobs.
    Events are sent only after a client has used EventBridge, because no rule can match them before that.
    """

    def __init__(
        self, store: JobStore, moto: MotoBackend, *, care: Callable[[list[JobRow]], None]
    ) -> None:
        self._store = store
        self._moto = moto
        self._care = care
        self._stopping = threading.Event()
        self._revision = 0
        self._num_seen: dict[tuple[str, float], int] = {}
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        """Start the thread. Earlier state changes cause no events."""
        for job in self._store.changed_since(0):
            self._news(job)
        self._thread.start()

    def stop(self) -> None:
        """Send the events of all changes so far and end the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        care_at = 0.0
        while True:
            stopping = self._stopping.wait(POLL_S)
            try:
                self._send_events()
                if time.monotonic() > care_at:
                    care_at = time.monotonic() + CARE_S
                    self._care(running_jobs(self._store))
            except Exception:  # The next round tries again; without this thread jobs could hang.
                log.exception("the watcher failed in one round")
            if stopping:
                return

    def _send_events(self) -> None:
        for job in self._store.changed_since(self._revision):
            for change in self._news(job):
                if self._moto.was_used("events"):
                    self._put(job, change)

    def _news(self, job: JobRow) -> list[dict[str, Any]]:
        """Return the job's changes since the last call, and record them as seen."""
        key = (job.arn, job.created_at)
        changes = state_changes(job)
        num_seen = self._num_seen.get(key, 0)
        self._num_seen[key] = len(changes)
        self._revision = max(self._revision, job.revision)
        return changes[num_seen:]

    def _put(self, job: JobRow, change: dict[str, Any]) -> None:
        try:
            self._moto.put_event(job.arn.split(":")[3], state_event(job, change))
        except Exception:  # moto raises for targets that it lacks, such as SNS and Lambda.
            log.warning("an event of %s was not delivered", job.arn, exc_info=True)


def running_jobs(store: JobStore) -> list[JobRow]:
    """Return all jobs that have not ended."""
    return [
        job
        for kind in ResourceKind
        for job in store.list(kind, JobQuery(statuses=RUNNING_STATUSES))
    ]
