"""Training page of one run as JSON-safe data."""

from __future__ import annotations

from dataclasses import MISSING, Field, asdict, fields
from typing import TYPE_CHECKING, Any

from trainyard.job_status import JobStatus
from trainyard.runs.builder import job_record
from trainyard.runs.goodput import TrainingSpan, goodput
from trainyard.runs.live.accrual import accrued_usd
from trainyard.runs.live.facts import mapping
from trainyard.runs.report.timeline import job_phases
from trainyard.runs.report.views import instances
from trainyard.specs.run_conf import RunConf
from trainyard.specs.script_conf import ScriptConf
from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trainyard.runs.live.facts import RunRow
    from trainyard.runs.live.training_events import TrainingEvents

_MOST_CHECKPOINTS = 50
_EMPTY: tuple[Any, ...] = (None, "", [], {}, ())
_JOB_MEMBERS = (
    "task_id",
    "name",
    "kind",
    "status",
    "secondary_status",
    "is_spot",
    "training_plan",
    "interruptions",
    "created_at",
    "started_at",
    "ended_at",
    "failure_reason",
    "rung_reason",
    "final_metrics",
)


def run_page(
    run: RunRow,
    *,
    jobs: Mapping[str, Sequence[Mapping[str, Any]]],
    events: TrainingEvents | None,
    rules: Sequence[Mapping[str, Any]],
    now: float,
    has_all_jobs: bool = True,
) -> dict[str, Any]:
    """Return the content of a run's page, without the training's curve and log.

    Args:
        run: the run's data from Airflow's database.
        jobs: snapshots of each task's jobs (`JobSnapshot.to_dict`) by task id, oldest first.
        events: the events of the training so far; None if the training has not begun.
        rules: the `rules.json` documents of the training's jobs, oldest first.
        now: epoch seconds.
        has_all_jobs: whether `jobs` has the jobs of all tasks; without some of them, the cost is incomplete.
    """
    shown = [row for task_id, each in jobs.items() for row in _jobs(task_id, each, run, now=now)]
    return {
        "run": _head(run),
        "tasks": [asdict(each) for each in run.tasks],
        "jobs": shown,
        "active_job": _active(shown),
        "progress": _progress(events, now=now) if events else None,
        "cost": _cost(run, shown, has_all_jobs=has_all_jobs),
        "goodput": _goodput(run, shown, events, now=now),
        "rules": _rules(rules),
        "checkpoints": _checkpoints(events),
        "starts": [dict(each) for each in events.starts] if events else [],
        "settings": list(_settings(run)),
        "now": now,
    }


def _head(run: RunRow) -> dict[str, Any]:
    report = run.report
    return {
        "dag_id": run.dag_id,
        "run_id": run.run_id,
        "state": run.state,
        "verdict": report.get("status") or run.state,
        "note": run.note or report.get("note"),
        "start": run.start,
        "end": run.end,
        "is_over": run.is_over,
        "is_paused": run.is_paused,
        "has_report": bool(run.result(TaskId.REPORT).get("report_html")),
        "model": run.result(TaskId.REGISTER).get("model_package_arn"),
    }


def _jobs(
    task_id: str, snapshots: Sequence[Mapping[str, Any]], run: RunRow, *, now: float
) -> Iterator[dict[str, Any]]:
    for number, snapshot in enumerate(snapshots, 1):
        job = job_record(task_id, snapshot, attempts=number)
        yield {
            **{name: getattr(job, name) for name in _JOB_MEMBERS},
            "instances": instances(job),
            "attempt": number,
            "cost_usd": accrued_usd(snapshot, now=now),
            "saved_usd": job.cost.get("saved_usd"),
            "transitions": list(job.transitions),
            "links": _links(run, task_id) if number == len(snapshots) else {},
            "phases": [asdict(each) for each in job_phases(job, job.ended_at or now)],
        }


def _links(run: RunRow, task_id: str) -> dict[str, str]:
    """Return the addresses of a job's pages, without values that are not web addresses."""
    links = mapping(run.links.get(task_id)).items()
    return {name: link for name, link in links if str(link).startswith("https://")}


def _active(jobs: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the name of a running job, preferably of the train task; None if no job runs."""
    running = [
        each
        for each in jobs
        if each["ended_at"] is None and each["status"] == JobStatus.IN_PROGRESS
    ]
    running.sort(key=lambda each: each["task_id"] != TaskId.TRAIN)
    return str(running[0]["name"]) if running else None


def _progress(events: TrainingEvents, *, now: float) -> dict[str, Any]:
    left = None
    if events.eta_s is not None and not events.is_done:
        left = max(0.0, events.eta_s - (now - (events.eta_at or now)))
    return {
        "step": events.last_step,
        "max_steps": events.max_steps,
        "left_s": left,
        "attempt": events.attempt,
        "is_done": events.is_done,
    }


def _cost(run: RunRow, jobs: Sequence[Mapping[str, Any]], *, has_all_jobs: bool) -> dict[str, Any]:
    """Return the run's cost, savings, estimate and limits in USD, for its page.

    An ended run has the cost that its report states. Otherwise the cost is that of the jobs so far.
    """
    amounts = [each["cost_usd"] for each in jobs]
    saved = [each["saved_usd"] for each in jobs if each["saved_usd"] is not None]
    reported = run.number(TaskId.REPORT, "cost_usd") if run.is_over else None
    state = run.result(TaskId.PREFLIGHT)
    so_far = sum(each for each in amounts if each is not None)
    is_known = has_all_jobs and None not in amounts and not run.has_unread_jobs
    return {
        "so_far_usd": so_far if reported is None else reported,
        "is_complete": reported is not None or is_known,
        "ceiling_usd": mapping(state.get("plan")).get("ceiling_usd"),
        "estimate_usd": mapping(mapping(state.get("plan")).get("estimate")).get("usd"),
        "budget_usd": run.settings.get("budget_usd"),
        "cap_usd": run.settings.get("max_cost_usd"),
        "saved_usd": sum(saved) if saved else None,
    }


def _goodput(
    run: RunRow, jobs: Sequence[Mapping[str, Any]], events: TrainingEvents | None, *, now: float
) -> dict[str, Any] | None:
    """Return the wall time by cause so far, as `Goodput.to_dict`; None before the run's start.

    The report is more exact, because it also reads the ranks' statistics.
    """
    if run.start is None:
        return None
    working = [
        (phase["start"], phase["end"])
        for job in jobs
        if job["task_id"] == TaskId.TRAIN
        for phase in job["phases"]
        if phase["css"] == "working"
    ]
    return goodput(
        begun_at=run.start,
        ended_at=run.end or now,
        tasks=[asdict(each) for each in run.tasks],
        jobs=jobs,
        starts=list(_spans(events.starts if events else (), working)),
        stall_seconds=events.stall_seconds if events else 0.0,
    ).to_dict()


def _spans(
    starts: Sequence[Mapping[str, Any]], working: Sequence[tuple[float, float]]
) -> Iterator[TrainingSpan]:
    """Yield each start of the training's processes, with the period whose work was lost.

    The period begins at the end of the last logged step that the next start did not have to repeat. Without
    such a step, it begins at the start itself. It ends at the earliest of these times: `restarted_from`, the
    stop of the instances, and the next start. Without lost work, `lost_from` is None.

    Args:
        starts: the starts, as in `TrainingEvents.starts`.
        working: (begin, end) of the times in which the training's instances worked, epoch seconds.
    """
    begins = [each["time"] for each in starts]
    for start, next_at in zip(starts, [*begins[1:], None], strict=False):
        lost_from, restarted_from = start.get("lost_from"), start.get("restarted_from")
        ends = [
            end for begin, end in working if lost_from is not None and begin <= lost_from <= end
        ]
        ends += [each for each in (restarted_from, next_at) if each is not None]
        yield TrainingSpan(
            job=start["job"],
            at=start["time"],
            lost_from=lost_from,
            lost_until=min(ends, default=None),
            restarted_from=restarted_from,
        )


def _rules(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    verdicts = [each for document in documents for each in document.get("verdicts", ())]
    found = [
        {
            "name": verdict["name"],
            "severity": issue["severity"],
            "step": issue["step"],
            "text": issue["text"],
        }
        for verdict in verdicts
        for issue in verdict.get("issues", ())
    ]
    stopped = next((each["stopped_by"] for each in documents if each.get("stopped_by")), None)
    return {
        "num_rules": len({each["name"] for each in verdicts if not each.get("not_evaluated")}),
        "num_records": sum(int(each.get("num_records", 0)) for each in documents),
        "issues": found,
        "stopped_by": stopped,
    }


def _checkpoints(events: TrainingEvents | None) -> list[dict[str, Any]]:
    if events is None:
        return []
    newest = sorted(events.checkpoints, reverse=True)[:_MOST_CHECKPOINTS]
    return [dict(events.checkpoints[step]) for step in newest]


def _settings(run: RunRow) -> Iterator[dict[str, Any]]:
    """Yield name and value of each setting, and whether it `differs` from its default.

    The settings are in the order of their declaration.
    """
    conf = run.settings
    is_script = run.result(TaskId.PREFLIGHT).get("conf_type") == ScriptConf.__name__
    kind = ScriptConf if is_script else RunConf
    defaults = {each.name: _default(each) for each in fields(kind)}
    others = (name for name in conf if name not in defaults)
    for name in (*(each for each in defaults if each in conf), *others):
        value, default = conf[name], defaults.get(name)
        is_empty = value in _EMPTY and default in _EMPTY
        yield {
            "name": name,
            "value": value,
            "differs": not is_empty and _plain(value) != _plain(default),
        }


def _default(each: Field[Any]) -> Any:
    if each.default is not MISSING:
        return each.default
    return each.default_factory() if each.default_factory is not MISSING else None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
