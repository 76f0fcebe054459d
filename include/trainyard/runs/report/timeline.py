"""Timeline of a run's tasks and of the phases of their SageMaker jobs, as inline SVG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from trainyard.runs.report.axes import Axis, exact_axis, time_unit
from trainyard.runs.report.plot_area import block_legend, chart_svg, column_grid
from trainyard.units import format_duration

if TYPE_CHECKING:
    from trainyard.runs.record import JobRecord, RunRecord, TaskRecord

WIDTH = 1100
_LEFT, _RIGHT, _TOP, _BOTTOM = 190, 110, 8, 42
_TASK_HEIGHT, _JOB_HEIGHT, _GAP = 20, 10, 12

# Phase per secondary status; other statuses have the phase `other`.
PHASES = {
    "Pending": "waiting",
    "Starting": "waiting",
    "LaunchingMLInstances": "waiting",
    "PreparingTrainingStack": "waiting",
    "Downloading": "downloading",
    "DownloadingTrainingImage": "downloading",
    "Training": "working",
    "Processing": "working",
    "Uploading": "uploading",
    "Interrupted": "interrupted",
    "Restarting": "interrupted",
    "Stopping": "stopping",
    "Updating": "other",
}
_PHASE_NAMES = {
    "waiting": "starting",
    "downloading": "downloading",
    "working": "training or processing",
    "uploading": "uploading",
    "interrupted": "interrupted",
    "stopping": "stopping",
    "other": "other",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePhase:
    """One phase of a job, from `start` to `end` in epoch seconds."""

    name: str
    css: str
    start: float
    end: float


def timeline(record: RunRecord) -> Markup:
    """Return the timeline; an empty Markup if no task has started."""
    tasks = sorted((t for t in record.tasks if t.start is not None), key=lambda t: t.start or 0)
    if not tasks:
        return Markup("")
    begin, end = _span(record, tasks)
    scale, unit = time_unit(end - begin)
    x = exact_axis(0, (end - begin) / scale, start=_LEFT, end=WIDTH - _RIGHT, num_ticks=9)
    place = _Place(x=x, begin=begin, scale=scale, end=end)
    rows: list[Markup] = []
    top = float(_TOP)
    for task in tasks:
        jobs = [job for job in record.jobs if job.task_id == task.task_id]
        rows.append(_task_row(task, place, top))
        rows += [
            _job_row(job, place, top + _TASK_HEIGHT + 3 + index * (_JOB_HEIGHT + 3))
            for index, job in enumerate(jobs)
        ]
        top += _TASK_HEIGHT + len(jobs) * (_JOB_HEIGHT + 3) + _GAP
    base = top - _GAP + 6
    grid = column_grid(x, top=_TOP - 4, base=base, label=f"time since the run's start ({unit})")
    return chart_svg(
        [*grid, *rows], width=WIDTH, height=base + _BOTTOM, label="timeline", css="timeline"
    )


def timeline_legend(record: RunRecord) -> Markup:
    """Return the legend of the job phases that occur."""
    seen = {phase.css for job in record.jobs for phase in job_phases(job, job.ended_at or 0)}
    return block_legend((f"phase-{css}", n) for css, n in _PHASE_NAMES.items() if css in seen)


def job_phases(job: JobRecord, until: float) -> list[TimelinePhase]:
    """Return the phases of a job. A job without secondary statuses has two: starting and working.

    Args:
        job: the job.
        until: time up to which a phase is drawn if it has not ended, epoch seconds.
    """
    if job.transitions:
        spans = [(t["status"], t["start"], t["end"] or until) for t in job.transitions]
    else:
        working = "Training" if job.kind == "training" else "Processing"
        spans = [
            ("Starting", job.created_at, job.started_at or job.ended_at),
            (working, job.started_at, job.ended_at or until),
        ]
    return [
        TimelinePhase(name=name, css=PHASES.get(name, "other"), start=start, end=end)
        for name, start, end in spans
        if start is not None and end is not None and end > start
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    x: Axis
    begin: float
    scale: float
    end: float

    def at(self, moment: float) -> float:
        return self.x.pixel((moment - self.begin) / self.scale)


def _span(record: RunRecord, tasks: list[TaskRecord]) -> tuple[float, float]:
    starts = [t.start for t in tasks if t.start is not None]
    ends = [t.end for t in tasks if t.end is not None]
    ends += [job.ended_at for job in record.jobs if job.ended_at is not None]
    begin = min([*starts, *([record.started_at] if record.started_at is not None else [])])
    return begin, max([*ends, *starts, begin + 1])


def _task_row(task: TaskRecord, place: _Place, top: float) -> Markup:
    start, end = place.at(task.start or place.begin), place.at(task.end or place.end)
    seconds = task.seconds
    duration = "running" if seconds is None else format_duration(seconds)
    tries = f", try {task.try_number}" if task.try_number > 1 else ""
    name = task.task_id if task.map_index < 0 else f"{task.task_id} [{task.map_index}]"
    return Markup(
        '<text class="row" x="{lx}" y="{ty:.1f}" text-anchor="end">{name}</text>'
        '<rect class="task state-{state}" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h}" '
        'rx="4">'
        "<title>{name}: {state}, {duration}{tries}</title></rect>"
        '<text class="tick" x="{rx:.1f}" y="{ty:.1f}">{duration}{tries}</text>'
    ).format(
        lx=_LEFT - 12,
        ty=top + _TASK_HEIGHT * 0.72,
        name=name,
        state=task.state or "none",
        x=start,
        y=top,
        w=max(2.0, end - start),
        h=_TASK_HEIGHT,
        duration=duration,
        tries=tries,
        rx=max(start + 2, end) + 7,
    )


def _job_row(job: JobRecord, place: _Place, top: float) -> Markup:
    rect = Markup(
        '<rect class="phase-{css}" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h}" rx="2">'
        "<title>{job}: {name}, {duration}</title></rect>"
    )
    label = Markup('<text class="sub" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
        _LEFT - 12, top + _JOB_HEIGHT * 0.9, f"job {job.attempts}" if job.attempts > 1 else "job"
    )
    bars = (
        rect.format(
            css=phase.css,
            x=place.at(phase.start),
            y=top,
            w=max(1.0, place.at(phase.end) - place.at(phase.start) - 0.6),
            h=_JOB_HEIGHT,
            job=job.name,
            name=phase.name,
            duration=format_duration(phase.end - phase.start),
        )
        for phase in job_phases(job, place.end)
    )
    return label + Markup("").join(bars)
