"""The thread that carries all searches of one kind on: it polls while one runs and sleeps while none does."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

POLL_S = 0.1
MAX_FAULTS = 20
"""After so many rounds in a row that failed by a mistake of ours, about 2 s, a search is given up."""
LAST_ROUNDS_S = 5.0


class SearchRow(Protocol):
    """A search as stored."""

    @property
    def name(self) -> str:
        """Of the search."""

    @property
    def arn(self) -> str:
        """Of the search."""


Row = TypeVar("Row", bound=SearchRow)


class SearchThread(ABC, Generic[Row]):
    """Carries on every search that has not ended; `start` and `stop` frame its life.

    Args:
        name: of the thread.
        noun: what one search is called in the log.
    """

    def __init__(self, *, name: str, noun: str) -> None:
        self._noun = noun
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._faults: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Take up the searches that an earlier engine left, and those to come."""
        self._thread.start()

    def wake(self) -> None:
        """Look at once: a search was created or shall stop."""
        self._news.set()

    def stop_searches(self) -> None:
        """Let every search stop, as the service's Stop operation does; no job of it is launched after."""
        for row in self._running():
            self._request_stop(row)
        self.wake()

    def stop(self) -> None:
        """End the thread, after searches whose jobs have all ended were ended too."""
        deadline = time.monotonic() + LAST_ROUNDS_S
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(max(0.0, deadline - time.monotonic()))

    @abstractmethod
    def _running(self) -> Sequence[Row]:
        """Return the searches that have not ended."""

    @abstractmethod
    def _request_stop(self, row: Row) -> None:
        """Note that a search shall stop."""

    @abstractmethod
    def _round(self, row: Row) -> None:
        """Take a search one round further."""

    @abstractmethod
    def _give_up(self, row: Row, *, reason: str) -> None:
        """Fail the search; its jobs that still run are told to stop."""

    def _run(self) -> None:
        while True:
            running = self._running()
            for row in running:
                self._advance(row)
            if self._stopping.is_set():
                return
            self._news.wait(POLL_S if running else None)
            self._news.clear()

    def _advance(self, row: Row) -> None:
        try:
            self._round(row)
            self._faults.pop(row.arn, None)
        except Exception as error:  # The next round tries again; the other searches must go on.
            log.exception("%s %s: a round failed", self._noun, row.name)
            self._faults[row.arn] = self._faults.get(row.arn, 0) + 1
            if self._faults[row.arn] >= MAX_FAULTS:
                reason = f"InternalServerError: {type(error).__name__}: {error}"
                self._give_up(row, reason=reason[:1024])
