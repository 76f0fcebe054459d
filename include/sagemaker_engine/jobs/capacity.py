"""Wait for instance capacity before each attempt of a job."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sagemaker_engine.faults import FaultKind
from sagemaker_engine.faults.model import CAPACITY_KINDS
from sagemaker_engine.jobs.job import JobError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.faults import Fault, FaultStore
    from sagemaker_engine.jobs.supervision import Ending

log = logging.getLogger(__name__)

REPLACEMENT_S = 2.0
"""Seconds, times the time scale, until new hosts replace lost ones. On AWS this takes minutes."""
POLL_S = 0.1
CAPACITY_ERROR = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a "
    "different ML instance type."
)
"""FailureReason in the service's words, as quoted by users in public threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequest:
    """One attempt's request for instances. `order` returns the reason to end the job, or None."""

    fault_store: FaultStore
    job: str
    subject: str
    attempt: int
    order: Callable[[], Ending | None]

    def wait(self, at_least_s: float) -> Ending | None:
        """Wait for instances. Return None when they are available, or the reason why the job ended first.

        Raises:
            JobError: A fault answers the request with CapacityError.
        """
        shortages = [fault for fault in self._faults() if self._claim(fault)]
        if any(fault.what is FaultKind.CAPACITY_ERROR for fault in shortages):
            raise JobError(CAPACITY_ERROR)
        began_at = time.monotonic()
        ready_at = began_at + at_least_s
        pause = threading.Event()
        while (ending := self.order()) is None:
            now = time.monotonic()
            if now >= ready_at and not self._is_short(shortages, waited_s=now - began_at):
                return None
            pause.wait(POLL_S if shortages else min(POLL_S, max(0.0, ready_at - now)))
        return ending

    def _is_short(self, shortages: list[Fault], *, waited_s: float) -> bool:
        """Return whether a claimed shortage persists. Removing the fault from the fault store ends it."""
        left = [each for each in shortages if each.duration_s is None or waited_s < each.duration_s]
        return bool(left) and not {each.id for each in left}.isdisjoint(self.fault_store.ids())

    def _faults(self) -> list[Fault]:
        return self.fault_store.of_job(self.job, self.attempt, kinds=CAPACITY_KINDS)

    def _claim(self, fault: Fault) -> bool:
        claimed = self.fault_store.claim(fault, subject=self.subject)
        if claimed:
            log.info("fault %s occurs: %s", fault.id, fault.what)
        return claimed
