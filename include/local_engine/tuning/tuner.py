"""The thread that carries all searches on: it polls while one runs and sleeps while none does."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from include.local_engine.tuning.rounds import Search
from include.local_engine.tuning.tables import STATUS_KEY

if TYPE_CHECKING:
    from include.local_engine.tuning.rounds import Yard
    from include.local_engine.tuning.tables import TuningRow

log = logging.getLogger(__name__)

POLL_S = 0.1
MAX_FAULTS = 20
"""After so many rounds in a row that failed by a mistake of ours, about 2 s, a search is given up."""
LAST_ROUNDS_S = 5.0


class Tuner:
    """Carries on every tuning job that has not ended; `start` and `stop` frame its life."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._searches: dict[str, Search] = {}
        self._faults: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="tuner", daemon=True)

    def start(self) -> None:
        """Take up the searches that an earlier engine left, and those to come."""
        self._thread.start()

    def wake(self) -> None:
        """Look at once: a tuning job was created or shall stop."""
        self._news.set()

    def stop_searches(self) -> None:
        """Let every search stop, as StopHyperParameterTuningJob does; no trial is launched after."""
        for row in self._yard.tables.running():
            self._yard.tables.change(
                row.name,
                lambda state: state.update({STATUS_KEY: "Stopping"}),
                at=self._yard.clock(),
                stop=True,
            )
        self.wake()

    def stop(self) -> None:
        """End the thread, after searches whose trials have all ended were ended too."""
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

    def _advance(self, row: TuningRow) -> None:
        try:
            search = self._searches.get(row.arn)
            if search is None or search.tuning.created_at != row.created_at:
                search = self._searches[row.arn] = Search.of(self._yard, row)
            if search.advance(row):
                del self._searches[row.arn]
            self._faults.pop(row.arn, None)
        except Exception as error:  # The next round tries again; the other searches must go on.
            log.exception("tuning job %s: a round failed", row.name)
            self._faults[row.arn] = self._faults.get(row.arn, 0) + 1
            if self._faults[row.arn] >= MAX_FAULTS:
                self._give_up(row, error)

    def _give_up(self, row: TuningRow, error: Exception) -> None:
        """Fail the search; its trials that still run are told to stop."""
        now = self._yard.clock()
        reason = f"InternalServerError: {type(error).__name__}: {error}"

        def change(state: dict[str, Any]) -> None:
            state[STATUS_KEY] = "Failed"
            state["FailureReason"] = reason[:1024]
            state["HyperParameterTuningEndTime"] = now

        self._yard.tables.change(row.name, change, at=now)
        for trial in self._yard.tables.trials(row.arn):
            if trial.result is None:
                self._yard.stop_job(trial.job_name)
