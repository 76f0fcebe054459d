"""Thread that advances all searches of one kind, such as all tuning jobs.

It polls the searches while one of them is running, and otherwise sleeps.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic

from sagemaker_engine.searches.search import SearchNotRunningError, request_stop
from sagemaker_engine.searches.tables import Job, Row

if TYPE_CHECKING:
    from sagemaker_engine.searches.search import Search, SearchPorts

log = logging.getLogger(__name__)

POLL_S = 0.1
DATABASE_PAUSE_S = 1.0
MAX_FAULTS = 20
"""Number of consecutive polls with an error of the engine after which a search fails (about 2 s)."""
LAST_ROUNDS_S = 5.0


class SearchThread(Generic[Row, Job]):
    """Thread that advances all unfinished searches of one kind, from `start` to `stop`."""

    def __init__(self, search: type[Search[Row, Job]], ports: SearchPorts[Row, Job]) -> None:
        self._search = search
        self._ports = ports
        self._searches: dict[str, Search[Row, Job]] = {}
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._faults: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name=search.kind.noun, daemon=True)

    def start(self) -> None:
        """Start the thread, which also resumes unfinished searches of an earlier engine."""
        self._thread.start()

    def wake(self) -> None:
        """Poll immediately, because a search was created or should stop."""
        self._news.set()

    def stop_searches(self) -> None:
        """Stop every search, as the service's Stop operation does. No more jobs are launched."""
        kind = self._search.kind
        for row in self._ports.tables.running():
            with suppress(SearchNotRunningError):
                request_stop(self._ports.tables, row, kind, at=self._ports.clock())
        self.wake()

    def stop(self) -> None:
        """Poll a last time and end the thread; wait up to 5 s for its end.

        The last poll ends the searches whose jobs have all ended.
        """
        deadline = time.monotonic() + LAST_ROUNDS_S
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while True:
            pause_s = self._one_round()
            if self._stopping.is_set():
                return
            self._news.wait(pause_s)
            self._news.clear()

    def _one_round(self) -> float | None:
        """Advance every search; return the seconds until the next poll, or None if no search is running."""
        try:
            running = self._ports.tables.running()
            for row in running:
                self._advance(row)
        except sqlite3.OperationalError:  # A full disk, a locked database: no search fails by it.
            log.exception("The state of the searches cannot be read or written")
            return DATABASE_PAUSE_S
        return POLL_S if running else None

    def _advance(self, row: Row) -> None:
        try:
            self._round(row)
            self._faults.pop(row.arn, None)
        except sqlite3.OperationalError:
            raise
        except Exception as error:  # The next round tries again; other searches must continue.
            log.exception("%s %s: a round failed", self._search.kind.noun, row.name)
            self._faults[row.arn] = self._faults.get(row.arn, 0) + 1
            if self._faults[row.arn] >= MAX_FAULTS:
                reason = f"InternalServerError: {type(error).__name__}: {error}"
                self._give_up(row, reason=reason[:1024])

    def _round(self, row: Row) -> None:
        """Advance a search once. Its `Search` object, with cached data, is dropped when the search ends."""
        search = self._searches.get(row.arn)
        if search is None or search.row.created_at != row.created_at:
            search = self._searches[row.arn] = self._search(self._ports, row)
        if search.advance(row):
            del self._searches[row.arn]

    def _give_up(self, row: Row, *, reason: str) -> None:
        """Set the search to failed, and stop its unfinished jobs."""
        kind, now = self._search.kind, self._ports.clock()
        outcome: dict[str, Any] = {**kind.failed, "FailureReason": reason, kind.end_key: now}
        self._ports.tables.change(row.name, lambda state: state.update(outcome), at=now)
        self._searches.pop(row.arn, None)
        self._faults.pop(row.arn, None)
        for job in self._ports.tables.jobs(row.arn):
            if job.result is None:
                self._ports.stop_job(job.job_kind, job.job_name)
