"""When the faults of one attempt come: which wait for their moment, which are due now."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from sagemaker_engine.faults import FaultKind, JobState
from sagemaker_engine.faults.model import CAPACITY_KINDS, COMPUTE_KINDS, LOSS_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.faults import Fault, FaultStore

HOST_KINDS = COMPUTE_KINDS - CAPACITY_KINDS
LOOK_S = 0.2
"""How old what was read from the fault store may be."""

_STEP = re.compile(r"(?:\bstep=|^\[(?=\d+\](?:#011|\t)))(\d+)")
"""The steps of our own scripts, and the rounds of XGBoost: `[12]#011train-rmse:...`."""


class Moments:
    """The faults of one attempt. Lines may come from another thread than questions."""

    def __init__(
        self,
        *,
        fault_store: FaultStore,
        job: str,
        subject: str,
        attempt: int,
        is_spot: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; `subject` names this attempt in the fault store's list of what came."""
        self._fault_store = fault_store
        self._job = job
        self._subject = subject
        self._attempt = attempt
        self._is_spot = is_spot
        self._clock = clock
        self._step = -1
        self._state: JobState | None = None
        self._trains_since: float | None = None
        self._come: set[str] = set()
        self._known: list[Fault] = []
        self._looked_at = float("-inf")

    def line(self, text: str) -> None:
        """Take note of a line of the job's log."""
        for found in _STEP.finditer(text):
            self._step = max(self._step, int(found[1]))

    def enter(self, state: JobState) -> None:
        """Take note of what the attempt does from now on."""
        self._state = state
        self._looked_at = float("-inf")
        if state is JobState.TRAINING:
            self._trains_since = self._clock()

    @property
    def awaited(self) -> list[Fault]:
        """Return the faults that may still come in this attempt."""
        now = self._clock()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._known = self._read()
        return [each for each in self._known if each.id not in self._come]

    def due(self, *, is_checkpointing: bool = False) -> list[Fault]:
        """Return the faults that come now, and claim them: nobody gets them again.

        At most one takes hosts away, and it is the last: after it there is nothing left to hit.
        """
        due = []
        for fault in self.awaited:
            if not self._is_due(fault, is_checkpointing=is_checkpointing):
                continue
            self._come.add(fault.id)
            if self._fault_store.claim(fault, subject=self._subject):
                due.append(fault)
                if fault.what in LOSS_KINDS:
                    break
        return due

    def _is_due(self, fault: Fault, *, is_checkpointing: bool) -> bool:
        moment = fault.at
        if moment is None or moment.state is JobState.TRAINING:
            return self._state is JobState.TRAINING
        if moment.step is not None:
            return self._step >= moment.step
        if moment.seconds is not None:
            since = self._trains_since
            return since is not None and self._clock() - since >= moment.seconds
        if moment.state is JobState.CHECKPOINTING:
            return is_checkpointing
        return self._state is moment.state

    def _read(self) -> list[Fault]:
        faults = self._fault_store.of_job(self._job, self._attempt, kinds=HOST_KINDS)
        schedule = self._fault_store.schedule()
        drawn = schedule.interruption(self._job, self._attempt) if schedule is not None else None
        if drawn is not None:
            faults.append(drawn)
        return [each for each in faults if self._is_spot or each.what is not FaultKind.INTERRUPT]
