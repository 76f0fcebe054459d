"""Measurement of a run: the durations of its jobs, stored for the estimates of later runs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from trainyard.errors import ContractError
from trainyard.planning.estimate.work import JobWork

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT, VERSION = "trainyard-measurement", 1
_NO_NUMBERS = {"run_id", "data", "jobs", "work", "task_id", "workload", "kind", "instance_type"}
_MAY_BE_ABSENT = {"wait_s", "loop_s", "saved_fraction", "test_units", "slowdown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMeasurement:
    """Durations of one ended job, or of the mean trial of a search.

    Attributes:
        on_instances_s: seconds for which the job had instances. For an on-demand job, these are the billed
            seconds.
        wait_s: seconds from the request to the start of the instances; None if unknown.
        loop_s: seconds from the end of the first step to the end of the last step; None if the log has no steps.
        saved_fraction: share of the seconds that was not billed on spot; None on demand.
    """

    work: JobWork
    on_instances_s: float
    wait_s: float | None = None
    loop_s: float | None = None
    saved_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasurement:
    """Durations of a run and of its jobs.

    Attributes:
        measured_at: time of the measurement in epoch seconds.
        between_jobs_s: seconds of wall time without a job and without a wait for a person's answer: Airflow's tasks,
            and sharding in the worker.
        data: key of its data (`data_key`).
        test_units: tokens or rows of the test split; None if it was not measured.
    """

    run_id: str
    measured_at: float
    between_jobs_s: float
    jobs: tuple[JobMeasurement, ...]
    data: str | None = None
    test_units: float | None = None

    def to_json(self) -> str:
        """Return the measurement as a JSON document."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read the measurement from a JSON document.

        Raises:
            ContractError: the document is not a measurement of this version.
        """
        try:
            return cls(**_members(json.loads(text)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ContractError(
                "the document is not a measurement of a run",
                got=f"{type(error).__name__}: {error}",
                allowed=f"format {FORMAT}, version {VERSION}",
                next_step="read it with the release of Trainyard that wrote it",
            ) from error


def _members(data: dict[str, Any]) -> dict[str, Any]:
    found = data.pop("format"), data.pop("version")
    if found != (FORMAT, VERSION):
        raise ValueError(f"format {found[0]}, version {found[1]}")
    jobs = (JobMeasurement(**{**each, "work": JobWork(**each["work"])}) for each in data["jobs"])
    members = {**data, "jobs": tuple(jobs)}
    for each in (
        members,
        *(part for job in members["jobs"] for part in (asdict(job), asdict(job.work))),
    ):
        _check_numbers(each)
    return members


def _check_numbers(members: Mapping[str, Any]) -> None:
    """Check that each number is valid, because estimates calculate with the numbers.

    An invalid number must be found here, so that no estimate fails and stops a run.

    Raises:
        ValueError: a member is not a number, or a job has no instances or ranks.
    """
    for name in members.keys() - _NO_NUMBERS:
        value = members[name]
        is_number = isinstance(value, int | float) and math.isfinite(value)
        if not is_number and not (value is None and name in _MAY_BE_ABSENT):
            raise ValueError(f"{name} is {value!r}, not a number")
    if members.get("instance_count", 1) < 1 or members.get("num_ranks", 1) < 1:
        raise ValueError("a job has no instances or no ranks")
