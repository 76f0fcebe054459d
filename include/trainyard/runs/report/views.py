"""Texts, key numbers and tables of the page: verdict, failure, shards, cost, lineage and conf."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any

from trainyard.job_status import TERMINAL_STATUSES
from trainyard.planning.estimate.run_estimate import estimate_text
from trainyard.runs.record import (
    FAILED,
    STOPPED_BY_CAP,
    STOPPED_BY_RULE,
    STOPPED_IDLE,
    SUCCEEDED,
)
from trainyard.runs.report.axes import TIMES
from trainyard.task_ids import TaskId
from trainyard.units import at_step, format_bytes, format_usd, format_utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainyard.runs.record import DatasetRecord, JobRecord, RunRecord, ShardRecord

Row = tuple[str, str]
_VERDICTS = {
    FAILED: ("Failed", "bad"),
    SUCCEEDED: ("Succeeded", "good"),
    STOPPED_BY_RULE: ("Stopped by a rule", "bad"),
    STOPPED_BY_CAP: ("Stopped by its cost cap", "warn"),
    STOPPED_IDLE: ("Stopped: idle accelerators", "warn"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One key number: its name, value and unit, and a note below it."""

    name: str
    value: str
    unit: str = ""
    note: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitView:
    """Shards of one split: their totals, and a comparison of their sizes.

    Attributes:
        spread: excess of the largest size over the mean size, as text such as `+3.1%`.
        shares: for each shard, its size as a share of the largest size, and a text with its file and size.
    """

    name: str
    num_shards: int
    rows: str
    tokens: str
    size: str
    spread: str
    shares: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureView:
    """Section on a failure or an early end: headline, labeled details, findings, and the end of the log."""

    headline: str
    details: tuple[Row, ...] = ()
    findings: tuple[str, ...] = ()
    log_tail: str = ""


def verdict(record: RunRecord) -> tuple[str, str]:
    """Return the outcome of the run in words, and its tone (`good`, `bad`, `warn`)."""
    return _VERDICTS.get(record.status, ("Still running", "warn"))


def subtitle(record: RunRecord) -> str:
    """Return the known facts about model, data and instances in one line."""
    conf, job = record.conf, record.job_of("train")
    parts = []
    if conf.get("model"):
        parts.append(f"model {conf['model']}")
    if conf.get("entry_point"):
        parts.append(str(conf["entry_point"]))
    if record.dataset and record.dataset.source_bytes:
        parts.append(f"{format_bytes(record.dataset.source_bytes)} of {_source(record)}")
    if job and job.instance_type:
        parts.append(instances(job))
    elif conf.get("instance_type"):
        parts.append(f"{conf.get('instance_count', 1)} {TIMES} {conf['instance_type']}")
    if record.plan.get("world_size"):
        parts.append(f"{record.plan['world_size']} ranks")
    return " · ".join(parts)


def instances(job: JobRecord) -> str:
    """Return the type and number of a job's instances as text, for each instance group if the job has groups."""
    if not job.instance_groups:
        return f"{job.instance_count} {TIMES} {job.instance_type or 'unknown'}"
    return " + ".join(
        f"{each['instance_count']} {TIMES} {each['instance_type']} ({each['instance_group_name']})"
        for each in job.instance_groups
    )


def failure_view(record: RunRecord) -> FailureView | None:
    """Return the cause of a failure and the next step; None for a run that did not fail."""
    failed = [t.task_id for t in record.tasks if t.state == "failed" and not t.is_failed_watch]
    if record.failure is None:
        if not failed:
            return None
        headline = f"Task {', '.join(failed)} failed; see its log in Airflow"
        return FailureView(headline=headline)
    task = record.failure.get("task_id") or (failed[0] if failed else None)
    return error_view({**record.failure, "task_id": task})


def verdict_view(record: RunRecord) -> FailureView | None:
    """Return the verdict of the rule that ended the training; None if no rule did."""
    if record.verdict is None:
        return None
    verdict = record.verdict
    skipped = ", ".join(task.task_id for task in record.tasks if task.state == "skipped")
    labeled = (
        ("evidence", verdict.get("evidence")),
        ("last checkpoint", verdict.get("last_checkpoint") or "none"),
        ("skipped after it", skipped),
        ("all verdicts", verdict.get("rules_uri")),
        (
            "next step",
            "fix the cause and start a new run; to continue anyway, clear the task train",
        ),
    )
    return FailureView(
        headline=f"Rule {verdict['rule']} ended the training{at_step(verdict['step'])}",
        details=tuple((name, str(value)) for name, value in labeled if value),
    )


def money_view(record: RunRecord) -> FailureView | None:
    """Return the section for a training that was ended by its cost cap or by idle accelerators; None otherwise."""
    stop = record.cap_stop or record.idle_stop
    if stop is None:
        return None
    spent, cap = (record.cost.get(each) for each in ("total_usd", "max_cost_usd"))
    by, next_step = "The cost cap", "to train to the end, start a run with a higher max_cost_usd"
    if record.cap_stop is None:
        by = "Idle accelerators"
        next_step = "the section on rules has the evidence: use the GPU or load data faster, and start another run"
    labeled = (
        ("cost of the run", format_usd(spent) + ("" if cap is None else f" of {format_usd(cap)}")),
        ("last checkpoint", stop.last_checkpoint or "none"),
        ("model so far", record.model_package_arn or "not registered"),
        ("next step", next_step),
    )
    return FailureView(
        headline=f"{by} ended the training{stop.at_step}; its model so far is this run's",
        details=labeled,
    )


def error_view(error: Mapping[str, Any]) -> FailureView:
    """Return the failure section for an error.

    Args:
        error: `TrainingRunError.to_dict()`, with the `task_id` of the failed task if it is known.
    """
    labeled = (
        ("task", error.get("task_id")),
        ("error", error.get("error")),
        ("where", error.get("where")),
        ("got", error.get("got")),
        ("allowed", error.get("allowed")),
        ("next step", error.get("next_step")),
    )
    findings = tuple(_finding_line(each) for each in error.get("findings", ()))
    return FailureView(
        headline=str(error.get("what") or "The run failed"),
        details=tuple((name, str(value)) for name, value in labeled if value),
        findings=findings,
        log_tail="\n".join(error.get("log_tail") or ()),
    )


def _finding_line(finding: Mapping[str, Any]) -> str:
    parts = (
        (finding.get("where"), "{}: "),
        (finding.get("what"), "{}. "),
        (finding.get("got"), "Got {}. "),
        (finding.get("allowed"), "Allowed: {}. "),
    )
    text = "".join(form.format(value) for value, form in parts if value)
    step = str(finding.get("next_step") or "")
    return f"{text}{step[:1].upper()}{step[1:]}".strip()


def tasks_not_run(record: RunRecord) -> str:
    """Return the tasks that never started, in words; empty while the run is running."""
    if record.status == "running":
        return ""
    return ", ".join(task.task_id for task in record.tasks if task.start is None)


def split_views(record: RunRecord) -> list[SplitView]:
    """Return one row per split of the data set."""
    if record.dataset is None:
        return []
    names = dict.fromkeys(shard.split for shard in record.dataset.shards)
    return [
        _split_view(name, [s for s in record.dataset.shards if s.split == name]) for name in names
    ]


def _split_view(name: str, shards: Sequence[ShardRecord]) -> SplitView:
    sizes = [shard.bytes for shard in shards]
    largest, mean = max(sizes), fmean(sizes)
    tokens = [shard.tokens for shard in shards if shard.tokens is not None]
    spread = f"+{(largest / mean - 1):.1%}" if len(shards) > 1 and mean else "\N{EN DASH}"
    return SplitView(
        name=name,
        num_shards=len(shards),
        rows=f"{sum(shard.rows for shard in shards):,}",
        tokens=f"{sum(tokens):,}" if tokens else "",
        size=format_bytes(sum(sizes)),
        spread=spread,
        shares=tuple(
            (s.bytes / largest if largest else 0.0, f"{s.file}: {format_bytes(s.bytes)}")
            for s in shards
        ),
    )


def dataset_rows(record: RunRecord) -> list[Row]:
    """Return the facts about the data set."""
    data = record.dataset
    if data is None:
        return []
    files = f" in {data.source_files:,} files" if data.source_files else ""
    size = f"{format_bytes(data.source_bytes)}{files}" if data.source_bytes else ""
    reused = "yes: the same source and settings were sharded before" if data.was_reused else ""
    return _present(
        [
            ("source", None if data.mixture else data.source_uri),
            *_mixture_rows(record, data),
            ("source size", size),
            ("tokenizer", data.tokenizer),
            ("bad rows", f"{data.bad_rows:,} in quarantine" if data.bad_rows else "none"),
            ("reused", reused),
            ("place", data.uri),
        ]
    )


def _mixture_rows(record: RunRecord, data: DatasetRecord) -> list[tuple[str, str | None]]:
    """Return a row for each source of a mixture.

    A row has the source's share of the samples. If known, it also has the number of passes over the source's
    data in the steps that the training completed.
    """
    measured = record.continuity or {}
    trained, batch = measured.get("final_step"), measured.get("global_batch_size")
    length = record.conf.get("sequence_length")
    rows: list[tuple[str, str | None]] = []
    for each in data.mixture:
        text = f"{100 * each.share:.4g} % of the samples"
        if trained and length and batch and each.train_tokens > length:
            passes = trained * batch * each.share / ((each.train_tokens - 1) // length)
            text += f", {passes:.3g} passes"
        rows.append((f"source {each.name}", f"{text}: {each.source_uri}"))
    return rows


def cost_rows(record: RunRecord) -> list[Row]:
    """Return the costs: total, estimate, ceilings, budget, savings and cost per unit of training."""
    cost = record.cost
    if not record.is_billed:
        return []
    total = format_usd(cost.get("total_usd"))
    is_whole = cost.get("is_complete", True) or cost.get("total_usd") is None
    return _present(
        [
            ("total", total if is_whole else f"{total} (some costs are unknown)"),
            ("estimate", estimate_against_actual(cost)),
            ("of it warm pools", _usd(cost.get("warm_pool_usd"))),
            ("billed by AWS", _billed(cost)),
            ("each job once for its longest time", _usd(cost.get("once_usd"))),
            ("ceiling of all jobs and attempts", _usd(cost.get("ceiling_usd"))),
            ("budget", _usd(cost.get("budget_usd"))),
            ("cap", _usd(cost.get("max_cost_usd"))),
            ("saved by spot", _saved(cost)),
            ("tokens trained", _count(cost.get("tokens_trained"))),
            ("per million tokens", _usd(cost.get("usd_per_million_tokens"))),
            ("per epoch", _usd(cost.get("usd_per_epoch"))),
            ("per point of validation loss", _usd(cost.get("usd_per_loss_point"))),
            ("prices", cost.get("note")),
        ]
    )


def lineage_rows(record: RunRecord) -> list[Row]:
    """Return the model's origin (data, code, job) and location."""
    data, job = record.dataset, record.job_of("train")
    return _present(
        [
            ("data fingerprint", data.fingerprint if data else None),
            ("code SHA-256", record.code_sha256),
            ("training job", job.name if job else None),
            ("image", job.image_uri if job else None),
            ("image digest", _digest(job) if job else None),
            ("model artifact", job.artifact_uri if job else None),
            ("model SHA-256", job.artifact_sha256 if job else None),
            ("model package", record.model_package_arn),
            (
                "not registered",
                "this DAG has no registration" if _lacks(record, TaskId.REGISTER) else None,
            ),
            ("approval", record.approval_status),
        ]
    )


def _digest(job: JobRecord) -> str | None:
    if job.image_digest is None and job.image_digest_unknown:
        return f"not known: {job.image_digest_unknown}"
    return job.image_digest


def evaluation_rows(record: RunRecord) -> list[Row]:
    """Return the metrics of the evaluation on the test split."""
    metrics = record.evaluation.get("metrics", {})
    rows: list[tuple[str, str | None]] = [
        (name.replace("_", " "), _number(value))
        for name, value in metrics.items()
        if value is not None
    ]
    rows += [
        (name.replace("num_", "test "), _count(record.evaluation.get(name)))
        for name in ("num_tokens", "num_rows")
    ]
    measured, of_split = (
        record.evaluation.get(name) for name in ("num_samples", "num_split_samples")
    )
    if measured and of_split and measured < of_split:
        rows += [("measured", f"{measured:,} of {of_split:,} samples, spread evenly")]
    planned = record.plan.get("evaluation") or {}
    rows += (
        [("measured on", planned.get("reason"))]
        if metrics and planned.get("place") != "none"
        else []
    )
    if _lacks(record, TaskId.EVALUATE):
        rows += [("not measured", "this DAG has no evaluation")]
    if any(each.task_id == "evaluate" and each.state == "skipped" for each in record.tasks):
        rows += [("not measured", _why_not_measured(record))]
    return _present(rows)


def _lacks(record: RunRecord, task_id: TaskId) -> bool:
    """Return whether the run's DAG trains a model and has no task `task_id`."""
    ids = {each.task_id for each in record.tasks}
    return TaskId.TRAIN in ids and task_id not in ids


def _why_not_measured(record: RunRecord) -> str:
    if record.conf.get("entry_point") and record.verdict is None:
        return "the run names no evaluation_entry_point"
    return "the training ended before its last step; not registered"


def conf_rows(record: RunRecord) -> list[Row]:
    """Return the run's conf, one row per field that is set."""
    chosen = record.plan.get("auto") or {}
    reasons = [("chosen by the planner", "; ".join(chosen["reasons"]))] if chosen else []
    return reasons + _present(
        (name, value if isinstance(value, str) else json.dumps(value))
        for name, value in record.conf.items()
        if value not in (None, {}, [])
    )


def job_state(job: JobRecord) -> tuple[str, str]:
    """Return a job's status as text, and its tone. The tone is the CSS class that sets the color.

    The text has the secondary status in brackets if it differs from the status. The tone is `good` for a job
    that succeeded, `bad` for one that ended otherwise, and `warn` for one that has not ended.
    """
    finer = job.secondary_status
    text = job.status if finer in {None, job.status} else f"{job.status} ({finer})"
    if job.succeeded:
        return text, "good"
    return text, "bad" if job.status in TERMINAL_STATUSES else "warn"


def moment(epoch: float | None) -> str:
    """Return a time as UTC to the second; empty for None."""
    return "" if epoch is None else f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _saved(cost: Mapping[str, Any]) -> str | None:
    """Return the saving of spot and the on-demand cost: `$0.52 of $0.74 on demand, 70 %`; None without a saving."""
    saved, fraction = cost.get("saved_usd"), cost.get("saved_fraction")
    if not saved or fraction is None:
        return _usd(saved or None)
    share = f"{fraction:.0%}".replace("%", " %")
    return f"{format_usd(saved)} of {format_usd(cost['on_demand_usd'])} on demand, {share}"


def estimate_against_actual(cost: Mapping[str, Any]) -> str | None:
    """Return the estimate with the actual cost; None without an estimate.

    Example: `$1.20 ($0.90 to $2.10), actual $1.31, +9 %`.
    """
    usd, error = cost.get("estimate_usd"), cost.get("estimate_error")
    if not usd:
        return None
    beside = "" if error is None else f", actual {format_usd(cost['total_usd'])}, {error:+.0%}"
    return estimate_text(usd) + beside.replace("%", " %")


def _billed(cost: Mapping[str, Any]) -> str | None:
    """Return the text on the run's bill for the page; None if neither bill nor time is known.

    If `trainyard bill` stored a bill, the text is like `$1.33, +1.5 % against the ledger, read on 2026-11-25`.
    Otherwise it names the time from which the bill can be read from AWS.
    """
    bill, due_at = cost.get("bill"), cost.get("bill_due_at")
    if bill is None or bill["usd"] is None:
        if due_at is None:
            return None
        return f"not known yet; from {format_utc(due_at)} UTC by trainyard bill REPORT.json --write"
    error = cost.get("bill_error")
    beside = "" if error is None else f", {error:+.1%} against the ledger".replace("%", " %")
    whole = "" if bill["is_late_enough"] else ", not all of its days"
    read_at = datetime.fromtimestamp(bill["read_at"], UTC)
    return f"{format_usd(bill['usd'])}{beside}, read on {read_at:%Y-%m-%d}{whole}"


def _present(rows: Iterable[tuple[str, str | None]]) -> list[Row]:
    return [(name, value) for name, value in rows if value]


def _source(record: RunRecord) -> str:
    data = record.dataset
    mixed = ", ".join(each.name for each in data.mixture) if data else ""
    uri = str(mixed or record.conf.get("source") or (data.source_uri if data else "") or "data")
    return uri if len(uri) <= 48 else f"…{uri[-46:]}"


def _usd(amount: float | None) -> str | None:
    return None if amount is None else format_usd(amount)


def _count(number: float | None) -> str | None:
    return None if number is None else f"{number:,.0f}"


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
