"""Instances of each start of the processes, from the jobs' secondary statuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from verify.log import Begun

_TAKEN = {"Interrupted": "interrupted", "Restarting": "restarted"}
_ENDED = {"Completed": "completed", "Failed": "failed", "Stopped": "stopped"}
_THERE = ("Downloading", "DownloadingTrainingImage", "Training", "Uploading")


@dataclass(slots=True, kw_only=True)
class Lived:
    """One attempt: a lifetime of a job's instances, and the start on them. Times are epoch seconds."""

    job: Mapping[str, Any]
    job_attempt: int
    instance_attempt: int
    ended_by: str
    begin: float | None
    ready: float | None
    trained: float | None
    end: float | None
    begun: Begun | None = None

    @property
    def waiting(self) -> float:
        """Seconds until instances were available."""
        return _between(self.begin, self.end if self.ready is None else self.ready)

    @property
    def startup(self) -> float:
        """Seconds from the availability of instances to the start of the processes."""
        return _between(self.ready, self.begun.start.time if self.begun else self.end)

    @property
    def training(self) -> float:
        """Seconds from the start of the processes to the end of training."""
        if self.begun is None:
            return 0.0
        return _between(
            self.begun.start.time,
            self.begun.last_time if self.trained is None else self.trained,
        )

    @property
    def on_instances(self) -> float:
        """Seconds on instances, by which the job's bill is divided."""
        return _between(self.ready, self.end)


def lives(jobs: Sequence[Mapping[str, Any]], starts: Sequence[Begun]) -> list[Lived]:
    """Return the attempts in order."""
    found: list[Lived] = []
    for number, job in enumerate(jobs, 1):
        own = list(_instances(job, number))
        before = found[-1].end if found else None
        if before is not None and (own[0].begin is None or before < own[0].begin):
            own[0].begin = before
        found += _placed(own, [start for start in starts if start.job == job["name"]])
    return found


def _instances(job: Mapping[str, Any], job_attempt: int) -> Iterator[Lived]:
    """Yield one lifetime up to each status that ends the instances, and the last one."""
    rows = job["transitions"]
    cuts = [n for n, row in enumerate(rows) if row["status"] in _TAKEN]
    begins, ends = [0, *cuts], [*cuts, len(rows)]
    for number, (first, last) in enumerate(zip(begins, ends, strict=True), 1):
        part = rows[first:last]
        is_last = last == len(rows) and number == len(begins)
        end = job["ended_at"] if is_last else rows[last]["start"]
        ready = [row["start"] for row in part if row["status"] in _THERE]
        trained = [row["end"] for row in part if row["status"] == "Training"]
        yield Lived(
            job=job,
            job_attempt=job_attempt,
            instance_attempt=number,
            ended_by=_end_of(job) if is_last else _TAKEN[rows[last]["status"]],
            begin=job["created_at"] if number == 1 else rows[first]["start"],
            ready=ready[0] if ready else None,
            trained=trained[-1] if trained and trained[-1] is not None else end,
            end=end,
        )


def _placed(instances: Sequence[Lived], starts: Sequence[Begun]) -> Iterator[Lived]:
    """Yield one attempt per start in a lifetime, or the lifetime itself without a start."""
    for number, life in enumerate(instances):
        is_first, is_last = number == 0, number == len(instances) - 1
        until = None if is_last else instances[number + 1].begin
        own = [
            start
            for start in starts
            if (is_first or start.start.time >= (life.begin or 0.0))
            and (until is None or start.start.time < until)
        ]
        begin, ready = life.begin, life.ready
        for place, start in enumerate(own):
            is_cut = place < len(own) - 1
            yield Lived(
                job=life.job,
                job_attempt=life.job_attempt,
                instance_attempt=life.instance_attempt,
                ended_by="restarted" if is_cut else life.ended_by,
                begin=begin,
                ready=ready,
                trained=start.last_time if is_cut else life.trained,
                end=start.last_time if is_cut else life.end,
                begun=start,
            )
            begin = ready = start.last_time
        if not own:
            yield life


def _end_of(job: Mapping[str, Any]) -> str:
    if job["secondary_status"] in {"MaxRuntimeExceeded", "MaxWaitTimeExceeded"}:
        return "timed_out"
    return _ENDED.get(job["status"], "running")


def _between(begin: float | None, end: float | None) -> float:
    return max(0.0, end - begin) if begin is not None and end is not None else 0.0
