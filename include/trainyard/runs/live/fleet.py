"""Page of all runs of the deployment, with their cost, as JSON-safe data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainyard.catalog.instances import catalogue
from trainyard.cost.job_cost import job_cost, known_total, sum_usd
from trainyard.runs.evaluation_metrics import finite_number
from trainyard.runs.live.facts import mapping
from trainyard.task_ids import TaskId
from trainyard.units import utc_day

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trainyard.runs.live.facts import RunRow

_AT_WORK = frozenset({"running", "deferred", "up_for_retry", "awaiting_input"})
_MODEL_KEYS = ("model", "entry_point", "base_model")


def fleet_page(
    runs: Sequence[RunRow],
    *,
    month_runs: Sequence[RunRow],
    costs: Mapping[tuple[str, str], float | None],
    now: float,
) -> dict[str, Any]:
    """Return the data of the page: one row per listed run, and the spend of today and this month.

    The spend of a period is the total cost of the runs that run now or ended in this period.

    Args:
        runs: the listed runs, newest first, with the results of preflight and report.
        month_runs: every run that has not ended, or that ended after `month_start`, even if it is not in `runs`. Only
            the times, team and cost of these runs are needed.
        costs: cost so far of the running runs in USD, by DAG id and run id; None if it is not known.
        now: epoch seconds; days and months are UTC's.
    """
    rows = [_row(each, so_far_usd=costs.get((each.dag_id, each.run_id)), now=now) for each in runs]
    spent = [_money(each, costs.get((each.dag_id, each.run_id))) for each in month_runs]
    month = _since(spent, month_start(now).timestamp())
    return {
        "runs": rows,
        "now": now,
        "spend": {
            "today": _sum(_since(month, utc_day(now).timestamp())),
            "month": _sum(month),
            "by_dag": _sums(month, "dag_id"),
            "by_team": _sums([row for row in month if row["team"]], "team"),
        },
        "running": sum(not each.is_over for each in month_runs),
        "accelerators_in_use": sum(row["accelerators"] for row in rows if row["is_training"]),
    }


def month_start(now: float) -> datetime:
    """Return the beginning of the UTC month that contains the time `now` (epoch seconds)."""
    return utc_day(now).replace(day=1)


def _money(run: RunRow, so_far_usd: float | None) -> dict[str, Any]:
    """Return those fields of a run's row from which the page's spend is calculated: DAG, team, end and cost."""
    team = run.result(TaskId.PREFLIGHT).get("team")
    return {
        "dag_id": run.dag_id,
        "team": str(team) if team else None,
        "end": run.end,
        "is_over": run.is_over,
        "cost_usd": _cost_usd(run, so_far_usd),
    }


def _row(run: RunRow, *, so_far_usd: float | None, now: float) -> dict[str, Any]:
    state, report, conf = run.result(TaskId.PREFLIGHT), run.report, run.settings
    return {
        **_money(run, so_far_usd),
        "run_id": run.run_id,
        "state": run.state,
        "verdict": str(report.get("status") or run.state),
        "note": run.note,
        "start": run.start,
        "duration_s": None if run.start is None else (run.end or now) - run.start,
        "model": next((str(conf[key]) for key in _MODEL_KEYS if conf.get(key)), None),
        "instances": _instances(conf),
        "accelerators": _accelerators(conf),
        "is_training": _is_active(run, TaskId.TRAIN),
        "stage": _stage(run),
        "waits_for_person": any(each.waits_for_person for each in run.tasks),
        "ceiling_usd": mapping(state.get("plan")).get("ceiling_usd"),
        "figures": dict(mapping(report.get("figures"))),
        "settings": {**conf, **_image(report)},
        "has_report": bool(run.result(TaskId.REPORT).get("report_html")),
    }


def _cost_usd(run: RunRow, so_far_usd: float | None) -> float | None:
    """Return the cost of a run in USD; None if it is unknown.

    A running run has its cost so far. An ended run has the cost in its report or, without a report, the cost of
    its tasks' jobs. Without a report, the cost of a run with mapped tasks is unknown, because their jobs are
    not known here.
    """
    if not run.is_over:
        return None if run.has_unread_jobs else so_far_usd
    reported = run.number(TaskId.REPORT, "cost_usd")
    if reported is not None:
        return reported
    if not run.jobs or run.has_mapped_tasks:
        return None
    return known_total(_task_usd(run.result(each) or run.failed.get(each, {})) for each in run.jobs)


def _task_usd(result: Mapping[str, Any]) -> float | None:
    """Return the cost of a task's jobs in USD; None if it is unknown.

    `result` is the task's result or, if the task has none, its newest failed job.
    """
    if "cost_usd" in result:
        return known_total(
            [finite_number(result["cost_usd"]), finite_number(result.get("earlier_cost_usd", 0))]
        )
    earlier = result.get("earlier_attempts")
    return known_total(
        _job_usd(mapping(each))
        for each in (result, *(earlier if isinstance(earlier, list) else ()))
    )


def _job_usd(job: Mapping[str, Any]) -> float | None:
    is_counted = isinstance(job.get("instance_count", 1), int)
    is_billed = finite_number(job.get("billable_seconds")) is not None
    return job_cost(job).cost_usd if is_counted and is_billed else None


def _image(report: Mapping[str, Any]) -> dict[str, str]:
    """Return `image_uri` and `image_digest` of the training; values that are unknown are left out."""
    image = mapping(report.get("image"))
    names = ("image_uri", "image_digest")
    return {name: image[name] for name in names if isinstance(image.get(name), str)}


def _instances(conf: Mapping[str, Any]) -> str | None:
    if groups := _groups(conf):
        return " + ".join(
            f"{each.get('instance_count')} x {each['instance_type']}" for each in groups
        )
    kind = conf.get("instance_type")
    return f"{conf.get('instance_count') or 1} x {kind}" if kind else None


def _groups(conf: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a run's instance groups; empty without groups, or if the conf is malformed."""
    groups = conf.get("instance_groups")
    listed = groups if isinstance(groups, list | tuple) else ()
    return [each for each in listed if isinstance(each, Mapping) and each.get("instance_type")]


def _accelerators(conf: Mapping[str, Any]) -> int:
    """Return the number of accelerators in a run's cluster.

    Instances whose type has no accelerators, or is unknown, count as 0.
    """
    types, total = catalogue().types, 0
    for each in _groups(conf) or [conf]:
        known, count = types.get(str(each.get("instance_type"))), each.get("instance_count")
        total += known.num_accelerators * (count if isinstance(count, int) else 1) if known else 0
    return total


def _is_active(run: RunRow, task_id: str) -> bool:
    task = run.task(task_id)
    return task is not None and task.state in {"running", "deferred"}


def _stage(run: RunRow) -> str | None:
    """Return the current task of a run; None if the run is over or no task is active."""
    if run.is_over:
        return None
    at = [each for each in run.tasks if each.state in _AT_WORK]
    at.sort(key=lambda each: (each.task_id == TaskId.WATCH_RULES, each.start or 0.0))
    return at[0].task_id if at else None


def _since(rows: Sequence[Mapping[str, Any]], moment: float) -> list[Mapping[str, Any]]:
    return [row for row in rows if not row["is_over"] or (row["end"] or 0.0) >= moment]


def _sums(rows: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    """Return the total cost of the runs (`_sum`) for each value of the field `key`."""
    names = dict.fromkeys(row[key] for row in rows)
    return {name: _sum([row for row in rows if row[key] == name]) for name in names}


def _sum(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of the runs' known costs (`usd`), and whether all are known (`is_complete`)."""
    usd, is_complete = sum_usd(row["cost_usd"] for row in rows)
    return {"usd": usd, "is_complete": is_complete}
