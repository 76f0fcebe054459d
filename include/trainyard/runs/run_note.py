"""Summary of an ended run: one line and a few metrics, for lists of runs such as the one in Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.errors import shortened
from trainyard.runs.record import STOPPED_BY_CAP, STOPPED_BY_RULE, STOPPED_IDLE, SUCCEEDED
from trainyard.task_ids import TaskId
from trainyard.units import at_step, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.runs.record import RunRecord

_LONGEST = 500
_MOST_METRICS = 3
_MOST_FIGURES = 6


def run_note(record: RunRecord) -> str:
    """Return one line of at most 500 characters about a run: its status, its result and its cost.

    For a failed or stopped run, the status includes the reason.
    """
    watch = "rules not watched to the end" if record.has_failed_watch else ""
    parts = [_verdict(record), watch, *_result(record), _cost(record)]
    return shortened("; ".join(part for part in parts if part), limit=_LONGEST)


def run_figures(record: RunRecord) -> dict[str, float]:
    """Return up to 6 metrics of a run's evaluation; without an evaluation, of its training."""
    job = record.job_of(TaskId.TRAIN)
    measured = record.evaluation.get("metrics") or (job.final_metrics if job else {})
    known = {name: value for name, value in measured.items() if isinstance(value, (int, float))}
    return dict(list(known.items())[:_MOST_FIGURES])


def run_image(record: RunRecord) -> dict[str, str]:
    """Return `image_uri` and `image_digest` of a run's training; unknown values are omitted."""
    job = record.job_of(TaskId.TRAIN)
    known = {"image_uri": job.image_uri, "image_digest": job.image_digest} if job else {}
    return {name: value for name, value in known.items() if value}


def _verdict(record: RunRecord) -> str:
    if record.status == STOPPED_BY_RULE and record.verdict:
        verdict = record.verdict
        place = at_step(verdict["step"])
        return f"Stopped by rule {verdict['rule']}{place}, no model: {verdict['evidence']}"
    if record.status == STOPPED_BY_CAP and record.cap_stop:
        return f"Stopped by its cost cap{record.cap_stop.at_step}"
    if record.status == STOPPED_IDLE and record.idle_stop:
        return f"Stopped: idle accelerators{record.idle_stop.at_step}"
    if record.failure:
        at = record.failure.get("task_id")
        return f"Failed{f' in {at}' if at else ''}: {_cause(record.failure)}"
    return record.status.capitalize()


def _cause(failure: Mapping[str, Any]) -> str:
    """Return the cause of a failure. For several findings, return the first and the number of the others."""
    findings = failure.get("findings") or ()
    if not findings:
        return str(failure.get("what", "see its log"))
    first = findings[0]
    parts = [first.get("where"), first.get("what")]
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    got = f", got {first['got']}" if first.get("got") else ""
    return ": ".join(str(each) for each in parts if each) + got + more


def _result(record: RunRecord) -> Iterator[str]:
    metrics = record.evaluation.get("metrics") or {}
    if metrics.get("test_loss") is not None:
        metrics = {"test_loss": metrics["test_loss"]}
    for name, value in list(metrics.items())[:_MOST_METRICS]:
        if value is not None:
            yield f"{name.replace('_', ' ')} {value:.4g}"
    needs = [record.conf.get("register_when"), record.conf.get("approval") and "approval"]
    is_over = record.status in {SUCCEEDED, STOPPED_BY_CAP, STOPPED_IDLE}
    if any(needs) and is_over and not record.model_package_arn:
        yield f"not registered: needs {' and '.join(each for each in needs if each)}"
    if record.model_package_arn:
        group, _, version = record.model_package_arn.rpartition("/")
        yield f"model {group.rpartition('/')[2]} version {version}"


def _cost(record: RunRecord) -> str:
    spent = record.cost.get("total_usd")
    if spent is None:
        return ""
    cap = record.cost.get("max_cost_usd")
    of = "" if cap is None else f" of {format_usd(cap)} cap"
    return (
        f"cost {'' if record.cost.get('is_complete', True) else 'at least '}{format_usd(spent)}{of}"
    )
