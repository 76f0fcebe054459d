"""The thread that carries all AutoML jobs on: it polls while one runs and sleeps while none does."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from include.local_engine.automl.rounds import Search
from include.local_engine.automl.tables import SECONDARY_KEY, STATUS_KEY

if TYPE_CHECKING:
    from include.local_engine.automl.rounds import Yard
    from include.local_engine.automl.tables import AutoMLRow

log = logging.getLogger(__name__)

POLL_S = 0.1
MAX_FAULTS = 20
"""After so many rounds in a row that failed by a mistake of ours, about 2 s, a job is given up."""
LAST_ROUNDS_S = 5.0


class Driver:
    """Carries on every AutoML job that has not ended; `start` and `stop` frame its life."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._faults: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="automl", daemon=True)

    def start(self) -> None:
        """Take up the jobs that an earlier engine left, and those to come."""
        self._thread.start()

    def wake(self) -> None:
        """Look at once: an AutoML job was created or shall stop."""
        self._news.set()

    def stop_searches(self) -> None:
        """Let every job stop, as StopAutoMLJob does; no step is launched after."""
        for row in self._yard.tables.running():
            self._yard.tables.change(row.name, note_stop, at=self._yard.clock(), stop=True)
        self.wake()

    def stop(self) -> None:
        """End the thread, after jobs whose steps have all ended were ended too."""
        deadline = time.monotonic() + LAST_ROUNDS_S
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while True:
            running = self._yard.tables.running()
            for row in running:
                self._advance(row)
            if self._stopping.is_set():
                return
            self._news.wait(POLL_S if running else None)
            self._news.clear()

    def _advance(self, row: AutoMLRow) -> None:
        try:
            Search(yard=self._yard, row=row).advance()
            self._faults.pop(row.arn, None)
        except Exception as error:  # The next round tries again; the other jobs must go on.
            log.exception("AutoML job %s: a round failed", row.name)
            self._faults[row.arn] = self._faults.get(row.arn, 0) + 1
            if self._faults[row.arn] >= MAX_FAULTS:
                self._give_up(row, error)

    def _give_up(self, row: AutoMLRow, error: Exception) -> None:
        """Fail the job; its steps that still run are told to stop."""
        now = self._yard.clock()
        reason = f"InternalServerError: {type(error).__name__}: {error}"[:1024]
        outcome = {STATUS_KEY: "Failed", SECONDARY_KEY: "Failed", "FailureReason": reason}

        def change(state: dict[str, Any]) -> None:
            state.update({**outcome, "EndTime": now})

        self._yard.tables.change(row.name, change, at=now)
        for step in self._yard.tables.steps(row.arn):
            if step.result is None:
                self._yard.stop_job(step.kind.job_kind, step.job_name)


def note_stop(state: dict[str, Any]) -> None:
    """Move a state to Stopping."""
    state.update({STATUS_KEY: "Stopping", SECONDARY_KEY: "Stopping"})
