"""Moments of an attempt's compute faults: which faults are pending, and which are due now.

This module applies no fault: `host_faults` polls it and applies the due faults (see `disturbances` for an overview).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from sagemaker_engine.faults.model import (
    CAPACITY_KINDS,
    COMPUTE_KINDS,
    LOSS_KINDS,
    FaultKind,
    JobState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sagemaker_engine.faults.model import Fault
    from sagemaker_engine.faults.store import FaultStore

HOST_KINDS = COMPUTE_KINDS - CAPACITY_KINDS
LOOK_S = 0.2
"""Seconds for which the list read from the fault store is reused."""

_STEP = re.compile(r"(?:\bstep=|^\[(?=\d+\](?:#011|\t)))(\d+)")
"""Step numbers in logs: `step=12` of this project's scripts, and XGBoost's rounds as in `[12]#011train-rmse:...`."""


class Moments:
    """Pending faults of one attempt. `line` may be called from another thread than the other methods."""

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
        """Start without pending faults, before the attempt enters its first state.

        Args:
            fault_store: store of the injected faults.
            job: name of the training job.
            subject: name of this attempt in the fault store's records.
            attempt: number of the attempt, from 1.
            is_spot: whether the job uses spot instances.
            clock: clock in seconds.
        """
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
        """Read the step number in a line of the job's log, if it has one."""
        for found in _STEP.finditer(text):
            self._step = max(self._step, int(found[1]))

    def enter(self, state: JobState) -> None:
        """Record the phase that the attempt enters now."""
        self._state = state
        self._looked_at = float("-inf")
        if state is JobState.TRAINING:
            self._trains_since = self._clock()

    @property
    def awaited(self) -> list[Fault]:
        """Return the faults that may still occur in this attempt."""
        now = self._clock()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._known = self._read()
        return [each for each in self._known if each.id not in self._come]

    def due(
        self, *, is_checkpointing: bool = False, kinds: Collection[FaultKind] = HOST_KINDS
    ) -> list[Fault]:
        """Claim the faults of these kinds that are due now and return them. A claimed fault is never returned again.

        At most one of them removes hosts. It is the last in the list, because no host is left after it.
        """
        due = []
        for fault in self.awaited:
            if fault.what not in kinds or not self._is_due(
                fault, is_checkpointing=is_checkpointing
            ):
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
