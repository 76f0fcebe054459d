"""State of a task that survives its tries, in Airflow's task state store; empty if there is no such store."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

log = logging.getLogger(__name__)

_JOB = "job"
_REPORTED = "reported_attempt"
_VERDICTS = "verdict_attempts"
_TRIGGER_FAILURES = "trigger_failures"
_GIVEN_UP = "given_up_jobs"
_TRACED = "traced_jobs"
_TOGETHER_S = 3600.0
"""Seconds between two trigger failures after which the count starts again."""


class TaskMemory:
    """The task's job, and the last attempt whose failure was reported to Airflow.

    The store is optional, because the service has the same facts (ADR 0004). If the store does not answer, a
    warning is logged.

    Args:
        store: Airflow's task state store; None if this Airflow has none.
        forever: the value by which the store keeps an entry for an unlimited time. By default, the store
            keeps it for 30 days only, and a task that is cleared later would report its failure again.
    """

    def __init__(self, store: Any, *, forever: Any = None) -> None:
        self._store = store
        self._forever = forever
        self._reported: int | None = None

    @property
    def reported_attempt(self) -> int | None:
        """The last attempt whose failure was reported to Airflow; 0 if there is none, None without a readable store."""
        if self._reported is None:
            noted = self._get(_REPORTED, absent=0)
            self._reported = None if noted is None else int(noted)
        return self._reported

    @property
    def verdict_attempts(self) -> frozenset[int]:
        """Numbers of the attempts that a rule ended and that were not retried.

        For such an attempt, the rule's verdict was the task's result. The set is empty without a readable store.
        """
        return frozenset(self._get(_VERDICTS) or ())

    def note_job(self, name: str, facts: Mapping[str, Any]) -> None:
        """Store the name of the task's job, and its facts at submission."""
        self._set(_JOB, {"name": name, **facts})

    def facts_of(self, name: str) -> dict[str, Any]:
        """Return the facts that `note_job` stored for the job `name`; empty if there are none."""
        noted = self._get(_JOB) or {}
        return (
            {key: value for key, value in noted.items() if key != "name"}
            if noted.get("name") == name
            else {}
        )

    def note_reported(self, attempt: int) -> None:
        """Record that the end of this attempt is about to be reported."""
        self._reported = attempt
        self._set(_REPORTED, attempt, never_expires=True)

    def note_verdict(self, attempt: int) -> None:
        """Record that a rule ended this attempt, and that its verdict will be the task's result."""
        self._set(_VERDICTS, sorted({*self.verdict_attempts, attempt}), never_expires=True)

    @property
    def given_up_jobs(self) -> frozenset[str]:
        """Names of the jobs that this task failed to watch until their end; empty without a readable store."""
        return frozenset(self._get(_GIVEN_UP) or ())

    def note_given_up(self, name: str) -> None:
        """Record that this task failed to watch a job until its end."""
        self._set(_GIVEN_UP, sorted({*self.given_up_jobs, name}), never_expires=True)

    @property
    def traced_jobs(self) -> frozenset[str]:
        """Names of the jobs whose spans were exported; empty without a readable store."""
        return frozenset(self._get(_TRACED) or ())

    def note_traced(self, names: Iterable[str]) -> None:
        """Record that the trace spans of these jobs were exported."""
        self._set(_TRACED, sorted({*self.traced_jobs, *names}), never_expires=True)

    @property
    def trigger_failed_at(self) -> float:
        """Time of the last trigger failure, epoch seconds; 0.0 if there was none or the store is not readable."""
        return float((self._get(_TRIGGER_FAILURES) or {}).get("at", 0.0))

    def count_trigger_failure(self, now: float) -> int | None:
        """Return the number of consecutive trigger failures including this one; None if the store is not readable."""
        noted = self._get(_TRIGGER_FAILURES, absent={})
        if noted is None:
            return None
        is_next = now - float(noted.get("at", 0.0)) < _TOGETHER_S
        count = int(noted.get("count", 0)) + 1 if is_next else 1
        self._set(_TRIGGER_FAILURES, {"count": count, "at": now})
        return count

    def _get(self, key: str, *, absent: Any = None) -> Any:
        """Return the stored value, or `absent` if there is none; None if the store is not readable."""
        if self._store is None:
            return None
        try:
            noted = self._store.get(key)
        except Exception as error:  # noqa: BLE001  # any fault of a convenience
            log.warning("Task state store cannot be read (%s): continuing without it", error)
            return None
        return absent if noted is None else noted

    def _set(self, key: str, value: Any, *, never_expires: bool = False) -> None:
        """Store a value under a key in the task's state, if Airflow has such a store; an error is only logged."""
        if self._store is None:
            return
        retention = {"retention": self._forever} if never_expires else {}
        try:
            self._store.set(key, value, **retention)
        except Exception as error:  # noqa: BLE001  # any fault of a convenience
            log.warning("Task state store cannot be written (%s): continuing without it", error)
