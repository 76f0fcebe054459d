"""Tuning jobs and their trials as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sagemaker_engine.searches.tables import SearchJob, SearchRow, SearchTables
from sagemaker_engine.state.jobs import ResourceKind

STATUS_KEY = "HyperParameterTuningJobStatus"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow(SearchJob):
    """Stored row of one trial.

    Attributes:
        definition: index of its training job definition.
        result: members of a training job summary, and the member `Curve` with the logged values of the
            objective; None until the trial has ended.
        stop_reason: reason for which the search stopped the trial; None if the search did not stop it.
    """

    definition: int
    point: dict[str, str]
    stop_reason: str | None = None

    @property
    def job_kind(self) -> ResourceKind:
        """Return the kind of the trial's job."""
        return ResourceKind.TRAINING

    @property
    def is_stopped(self) -> bool:
        """Return whether the search has stopped the trial."""
        return self.stop_reason is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRow(SearchRow):
    """Stored row of one tuning job.

    `inherited` has the results that the trials of the parent tuning jobs had when this job was created.
    """

    status_key: ClassVar[str] = STATUS_KEY

    inherited: list[dict[str, Any]]


class TuningTables(SearchTables[TuningRow, TrialRow]):
    """Tables of tuning jobs and their trials."""

    schema = """
CREATE TABLE IF NOT EXISTS tuning_jobs (
    key TEXT PRIMARY KEY, name TEXT NOT NULL, arn TEXT NOT NULL UNIQUE, request TEXT NOT NULL,
    state TEXT NOT NULL, inherited TEXT NOT NULL, seed INTEGER NOT NULL, status TEXT NOT NULL,
    created_at REAL NOT NULL, modified_at REAL NOT NULL, stop_requested_at REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tuning_trials (
    tuning_arn TEXT NOT NULL, number INTEGER NOT NULL, job_name TEXT NOT NULL,
    definition INTEGER NOT NULL, point TEXT NOT NULL, decided_at REAL NOT NULL, launched_at REAL,
    stop_reason TEXT, result TEXT, PRIMARY KEY (tuning_arn, number)) WITHOUT ROWID
"""
    searches, jobs_table, owner = "tuning_jobs", "tuning_trials", "tuning_arn"

    def _read_search(self, columns: dict[str, Any]) -> TuningRow:
        return TuningRow(**columns)

    def _read_job(self, columns: dict[str, Any]) -> TrialRow:
        return TrialRow(**columns)
