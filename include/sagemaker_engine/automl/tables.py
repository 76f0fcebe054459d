"""Database tables of AutoML jobs and their steps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from sagemaker_engine.searches.tables import SearchJob, SearchRow, SearchTables
from sagemaker_engine.state.jobs import ResourceKind

STATUS_KEY = "AutoMLJobStatus"
SECONDARY_KEY = "AutoMLJobSecondaryStatus"


class StepKind(StrEnum):
    """Kind of a step of an AutoML job."""

    ANALYSIS = "analysis"
    CANDIDATE = "candidate"
    ENSEMBLE = "ensemble"
    EXPLANATION = "explanation"

    @property
    def job_kind(self) -> ResourceKind:
        """Kind of the step's job."""
        trains = self in {StepKind.CANDIDATE, StepKind.ENSEMBLE}
        return ResourceKind.TRAINING if trains else ResourceKind.PROCESSING

    @property
    def is_candidate(self) -> bool:
        """True if a step of this kind produces a model."""
        return self.job_kind is ResourceKind.TRAINING


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoMLStep(SearchJob):
    """Stored row of one step.

    `recipe` has the inputs of the step besides the AutoML job's request: algorithm and hyperparameters of a candidate,
    the job names of an ensemble's members, or the job name of the candidate to explain.
    """

    kind: StepKind
    recipe: dict[str, Any]
    is_stopped: bool = False

    @property
    def job_kind(self) -> ResourceKind:
        """Kind of the step's job."""
        return self.kind.job_kind

    @property
    def has_completed(self) -> bool:
        """True if the step's job has completed."""
        return self.result is not None and self.result["Status"] == "Completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoMLRow(SearchRow):
    """Stored row of one AutoML job."""

    status_key: ClassVar[str] = STATUS_KEY


class AutoMLTables(SearchTables[AutoMLRow, AutoMLStep]):
    """Tables of AutoML jobs and their steps."""

    schema = """
CREATE TABLE IF NOT EXISTS automl_jobs (
    key TEXT PRIMARY KEY, name TEXT NOT NULL, arn TEXT NOT NULL UNIQUE, request TEXT NOT NULL,
    state TEXT NOT NULL, seed INTEGER NOT NULL, status TEXT NOT NULL, created_at REAL NOT NULL,
    modified_at REAL NOT NULL, stop_requested_at REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS automl_steps (
    automl_arn TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, job_name TEXT NOT NULL,
    recipe TEXT NOT NULL, decided_at REAL NOT NULL, launched_at REAL, is_stopped INTEGER NOT NULL DEFAULT 0,
    result TEXT, PRIMARY KEY (automl_arn, number)) WITHOUT ROWID
"""
    searches, jobs_table, owner = "automl_jobs", "automl_steps", "automl_arn"

    def _read_search(self, columns: dict[str, Any]) -> AutoMLRow:
        return AutoMLRow(**columns)

    def _read_job(self, columns: dict[str, Any]) -> AutoMLStep:
        kind, is_stopped = StepKind(columns["kind"]), bool(columns["is_stopped"])
        return AutoMLStep(**{**columns, "kind": kind, "is_stopped": is_stopped})
