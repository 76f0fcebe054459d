"""Memory of a task across its tries, in Airflow's task state store; empty if there is no such store."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_JOB = "job"
_REPORTED = "reported_attempt"
_VERDICT = "verdict_attempt"
_TRIGGER_FAILURES = "trigger_failures"
_TOGETHER_S = 3600.0
"""Failures of triggers that are further apart are counted anew."""


class TaskMemory:
    """The task's job, and the last attempt whose failure was reported to Airflow.

    A convenience, never a need: the service knows the same (ADR 0004). So a store that is not there
    or does not answer costs a warning.

    Args:
        store: Airflow's task state store; None if this Airflow has none.
        forever: what the store takes for a retention without end; its default is 30 days, after which a task that is
            cleared would report its failure anew.
    """

    def __init__(self, store: Any, *, forever: Any = None) -> None:
        self._store = store
        self._forever = forever
        self._reported: int | None = None

    @property
    def reported_attempt(self) -> int | None:
        """The last attempt whose failure Airflow has seen, 0 for none; None when no store tells."""
        if self._reported is None:
            noted = self._get(_REPORTED, absent=0)
            self._reported = None if noted is None else int(noted)
        return self._reported

    @property
    def verdict_attempt(self) -> int:
        """The last attempt whose end by a rule was the task's result; 0 for none, and when no store tells."""
        return int(self._get(_VERDICT, absent=0) or 0)

    def note_job(self, name: str, facts: Mapping[str, Any]) -> None:
        """Remember the job the task waits for, and what was known when it was submitted."""
        self._set(_JOB, {"name": name, **facts})

    def facts_of(self, name: str) -> dict[str, Any]:
        """Return what was known when the job was submitted; empty when that is forgotten."""
        noted = self._get(_JOB) or {}
        return (
            {key: value for key, value in noted.items() if key != "name"}
            if noted.get("name") == name
            else {}
        )

    def note_reported(self, attempt: int) -> None:
        """Remember that the failure of this attempt is about to be raised."""
        self._reported = attempt
        self._set(_REPORTED, attempt, never_expires=True)

    def note_verdict(self, attempt: int) -> None:
        """Remember that a rule's end of this attempt is about to be the task's result."""
        self._set(_VERDICT, attempt, never_expires=True)

    def count_trigger_failure(self, now: float) -> int:
        """Return how often triggers of the task failed in a row, this time included; 1 when no store tells."""
        noted = self._get(_TRIGGER_FAILURES) or {}
        is_next = now - float(noted.get("at", 0.0)) < _TOGETHER_S
        count = int(noted.get("count", 0)) + 1 if is_next else 1
        self._set(_TRIGGER_FAILURES, {"count": count, "at": now})
        return count

    def _get(self, key: str, *, absent: Any = None) -> Any:
        """Return what is noted, `absent` when nothing is; None when the store cannot tell."""
        if self._store is None:
            return None
        try:
            noted = self._store.get(key)
        except Exception as error:  # noqa: BLE001  # any fault of a convenience
            log.warning("Task state store cannot be read (%s): going on without it", error)
            return None
        return absent if noted is None else noted

    def _set(self, key: str, value: Any, *, never_expires: bool = False) -> None:
        """Note a value."""
        if self._store is None:
            return
        retention = {"retention": self._forever} if never_expires else {}
        try:
            self._store.set(key, value, **retention)
        except Exception as error:  # noqa: BLE001  # any fault of a convenience
            log.warning("Task state store cannot be written (%s): going on without it", error)
