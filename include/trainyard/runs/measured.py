"""Measurement of an ended run from its record, for the estimates of later runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainyard.errors import SpecError
from trainyard.planning.estimate.measurement import JobMeasurement, RunMeasurement
from trainyard.planning.estimate.work import data_key, works_of
from trainyard.runs.goodput import Cause
from trainyard.runs.record import SUCCEEDED
from trainyard.runs.report.figures import points_of
from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.planning.estimate.work import JobWork
    from trainyard.runs.record import JobRecord, RunRecord
    from trainyard.specs.base_run_conf import BaseRunConf


def run_measurement(record: RunRecord, conf: BaseRunConf) -> RunMeasurement | None:
    """Return the measurement of a run; None if it did not succeed, or if its conf can no longer be estimated.

    Args:
        record: record of the run.
        conf: conf with which the run was planned, before a tuning job chose hyperparameters.
    """
    if record.status != SUCCEEDED or record.ended_at is None or record.wall_seconds is None:
        return None
    units = record.evaluation.get("num_tokens") or record.evaluation.get("num_rows")
    try:
        works = works_of(conf, test_units=units)
    except SpecError:  # the catalogue has changed since
        return None
    jobs = tuple(_jobs(record, works))
    spans = [(each.created_at, each.ended_at) for each in record.jobs]
    in_jobs_s = sum(end - begin for begin, end in spans if begin and end)
    waited_s = ((record.goodput or {}).get("seconds") or {}).get(Cause.PERSON, 0.0)
    return RunMeasurement(
        run_id=record.run_id,
        measured_at=record.ended_at,
        between_jobs_s=max(0.0, record.wall_seconds - in_jobs_s - waited_s),
        jobs=jobs,
        data=data_key(conf),
        test_units=units,
    )


def _jobs(record: RunRecord, works: tuple[JobWork, ...]) -> Iterator[JobMeasurement]:
    for work in works:
        jobs = [each for each in record.jobs if each.task_id == work.task_id]
        if len(jobs) != 1 or not jobs[0].succeeded or not jobs[0].training_seconds:
            continue
        if work.task_id == TaskId.TUNE:
            trials = len((record.tuning or {}).get("trials", ()))
            if trials:
                yield _measurement(record, work, jobs[0], num_jobs=trials)
        elif not jobs[0].interruptions:
            yield _measurement(record, work, jobs[0])


def _measurement(
    record: RunRecord, work: JobWork, job: JobRecord, *, num_jobs: int = 1
) -> JobMeasurement:
    """Return the measurement of a job on its actual instances, which may be those of any capacity tier.

    `num_jobs` is the number of trials of a tuning job, otherwise 1. The seconds on instances are divided by it.
    """
    count, ranks = job.instance_count, work.num_ranks // work.instance_count * job.instance_count
    got = replace(
        work, instance_type=job.instance_type or "", instance_count=count, num_ranks=ranks
    )
    waited = None
    if job.started_at is not None and job.created_at is not None:
        waited = max(0.0, job.started_at - job.created_at)
    saved = job.cost.get("saved_fraction")
    return JobMeasurement(
        work=got,
        on_instances_s=_on_instances_s(job) / num_jobs,
        wait_s=waited,
        loop_s=_loop_s(record, work) if work.task_id == TaskId.TRAIN else None,
        saved_fraction=saved if job.is_spot else None,
    )


def _on_instances_s(job: JobRecord) -> float:
    return float(job.training_seconds or 0)


def _loop_s(record: RunRecord, work: JobWork) -> float | None:
    """Return the seconds of all steps after the first.

    Return None if the training was resumed, or if it ran fewer or more steps than planned.
    """
    if any(event.get("event") == "resume" for event in record.history):
        return None
    times = [(int(step), float(at)) for step, at in _times(record)]
    if len(times) < 2 or times[-1][0] - times[0][0] != work.num_steps:
        return None
    return max(0.0, times[-1][1] - times[0][1]) or None


def _times(record: RunRecord) -> list[tuple[Any, Any]]:
    return list(points_of(record, "step", "time"))
