"""What the page says in words and numbers: verdict, key numbers, tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from include.runs.report.axes import TIMES
from include.runs.report.figures import points_of
from include.units import format_bytes, format_count, format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from include.runs.record import JobRecord, RunRecord, ShardRecord

Row = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One key number: its name, value, unit and the sentence beneath."""

    name: str
    value: str
    unit: str = ""
    note: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitView:
    """The shards of one split: totals, how even they are, each as a share of the largest."""

    name: str
    num_shards: int
    rows: str
    tokens: str
    size: str
    spread: str
    shares: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureView:
    """What went wrong: the sentence, its labelled details and the findings."""

    headline: str
    details: tuple[Row, ...] = ()
    findings: tuple[str, ...] = ()
    log_tail: str = ""


def verdict(record: RunRecord) -> tuple[str, str]:
    """Return the verdict and its tone (`good`, `bad`, `warn`)."""
    match record.status:
        case "failed":
            return "Failed", "bad"
        case "succeeded":
            return "Succeeded", "good"
        case _:
            return "Still running", "warn"


def subtitle(record: RunRecord) -> str:
    """Return one sentence about what was trained on what, as far as it is known."""
    conf, job = record.conf, record.job_of("train")
    parts = []
    if conf.get("model"):
        parts.append(f"model {conf['model']}")
    if record.dataset and record.dataset.source_bytes:
        parts.append(f"{format_bytes(record.dataset.source_bytes)} of {_source(record)}")
    if job and job.instance_type:
        parts.append(f"{job.instance_count} {TIMES} {job.instance_type}")
    elif conf.get("instance_type"):
        parts.append(f"{conf.get('instance_count', 1)} {TIMES} {conf['instance_type']}")
    if record.plan.get("world_size"):
        parts.append(f"{record.plan['world_size']} ranks")
    return " · ".join(parts)


def tiles(record: RunRecord) -> list[Tile]:
    """Return the key numbers there are: losses, cost, time, throughput, steps."""
    found = [
        _validation_tile(record),
        _test_tile(record),
        _cost_tile(record),
        _time_tile(record),
        _throughput_tile(record),
        _steps_tile(record),
    ]
    return [tile for tile in found if tile is not None]


def last_validation_loss(record: RunRecord) -> float | None:
    """Return the last validation loss the script reported, else the service's final metric."""
    evals = points_of(record, "eval", "validation_loss")
    if evals:
        return evals[-1][1]
    job = record.job_of("train")
    value = job.final_metrics.get("validation:loss") if job else None
    return None if value is None else float(value)


def _validation_tile(record: RunRecord) -> Tile | None:
    loss = last_validation_loss(record)
    if loss is None:
        return None
    unigram = record.dataset.unigram_loss if record.dataset else None
    if not unigram:
        return Tile(name="Validation loss", value=f"{loss:.4f}")
    gain = 1 - loss / unigram
    note = f"unigram baseline {unigram:.3f}: {abs(gain):.0%} {'below' if gain > 0 else 'above'} it"
    tone = "good" if gain > 0 else "bad"
    return Tile(
        name="Validation loss", value=f"{loss:.3f}", unit="nats/token", note=note, tone=tone
    )


def _test_tile(record: RunRecord) -> Tile | None:
    metrics = record.evaluation.get("metrics", {})
    if metrics.get("test_loss") is None:
        return None
    notes = []
    if metrics.get("test_perplexity") is not None:
        notes.append(f"perplexity {metrics['test_perplexity']:.2f}")
    if metrics.get("test_accuracy") is not None:
        notes.append(f"accuracy {metrics['test_accuracy']:.1%}")
    if metrics.get("unigram_loss"):
        notes.append(f"unigram {metrics['unigram_loss']:.3f}")
    return Tile(name="Test loss", value=f"{metrics['test_loss']:.3f}", note=", ".join(notes))


def _cost_tile(record: RunRecord) -> Tile | None:
    cost = record.cost
    if not record.jobs:
        return None
    total = cost.get("total_usd")
    notes = []
    if not cost.get("is_complete", True):
        notes.append("not all of it is known" if total else cost.get("note") or "")
    if cost.get("ceiling_usd") is not None:
        notes.append(f"ceiling of training {format_usd(cost['ceiling_usd'])}")
    if cost.get("saved_usd"):
        notes.append(f"spot saved {format_usd(cost['saved_usd'])}")
    return Tile(name="Cost", value=format_usd(total), note=", ".join(n for n in notes if n))


def _time_tile(record: RunRecord) -> Tile | None:
    if record.wall_seconds is None:
        return None
    job = record.job_of("train")
    seconds = job.training_seconds if job else None
    note = "" if seconds is None else f"training job {format_duration(seconds)}"
    return Tile(name="Wall time", value=format_duration(record.wall_seconds), note=note)


def _throughput_tile(record: RunRecord) -> Tile | None:
    for key, unit in (("tokens_per_second", "tokens/s"), ("samples_per_second", "samples/s")):
        speeds = [y for _, y in points_of(record, "step", key)]
        if speeds:
            note = f"median; highest {format_count(max(speeds))}"
            return Tile(name="Throughput", value=format_count(median(speeds)), unit=unit, note=note)
    return None


def _steps_tile(record: RunRecord) -> Tile | None:
    steps = [int(x) for x, _ in points_of(record, "step", "loss")]
    if not steps:
        return None
    done = max([*steps, *(int(e["step"]) for e in record.history if e.get("event") == "done")])
    wanted = record.conf.get("max_steps")
    resumes = sum(event.get("event") == "resume" for event in record.history)
    notes = [f"of {wanted:,}"] if isinstance(wanted, int) else []
    notes += [f"{resumes} resume{'s' if resumes > 1 else ''}"] if resumes else []
    return Tile(name="Steps", value=f"{done:,}", note=", ".join(notes))


def failure_view(record: RunRecord) -> FailureView | None:
    """Return what went wrong and what to do; None for a run that did not fail."""
    failed = [t.task_id for t in record.tasks if t.state == "failed"]
    if record.failure is None:
        if not failed:
            return None
        headline = f"Task {', '.join(failed)} failed; its log in Airflow says why"
        return FailureView(headline=headline)
    error = record.failure
    task = error.get("task_id") or (failed[0] if failed else None)
    labelled = (
        ("task", task),
        ("error", error.get("error")),
        ("where", error.get("where")),
        ("got", error.get("got")),
        ("allowed", error.get("allowed")),
        ("next step", error.get("next_step")),
    )
    findings = tuple(_finding_line(each) for each in error.get("findings", ()))
    return FailureView(
        headline=str(error.get("what") or "The run failed"),
        details=tuple((name, str(value)) for name, value in labelled if value),
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
    said = "".join(form.format(value) for value, form in parts if value)
    step = str(finding.get("next_step") or "")
    return f"{said}{step[:1].upper()}{step[1:]}".strip()


def tasks_not_run(record: RunRecord) -> str:
    """Return the tasks that never started, once the run is over; empty when all did."""
    if record.status == "running":
        return ""
    return ", ".join(task.task_id for task in record.tasks if task.start is None)


def split_views(record: RunRecord) -> list[SplitView]:
    """Return one row for each split of the data set."""
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
            ("source", data.source_uri),
            ("source size", size),
            ("tokenizer", data.tokenizer),
            ("bad rows", f"{data.bad_rows:,} put aside" if data.bad_rows else "none"),
            ("reused", reused),
            ("place", data.uri),
        ]
    )


def cost_rows(record: RunRecord) -> list[Row]:
    """Return the money: sum, ceiling, budget, savings and the price of a million tokens."""
    cost = record.cost
    if not record.jobs:
        return []
    total = format_usd(cost.get("total_usd"))
    is_whole = cost.get("is_complete", True) or cost.get("total_usd") is None
    return _present(
        [
            ("total", total if is_whole else f"{total} (not all is known)"),
            ("ceiling of the training job", _usd(cost.get("ceiling_usd"))),
            ("budget", _usd(cost.get("budget_usd"))),
            ("saved by spot", _usd(cost.get("saved_usd") or None)),
            ("tokens trained", _count(cost.get("tokens_trained"))),
            ("per million tokens", _usd(cost.get("usd_per_million_tokens"))),
            ("prices", cost.get("note")),
        ]
    )


def lineage_rows(record: RunRecord) -> list[Row]:
    """Return where the model came from and where it is."""
    data, job = record.dataset, record.job_of("train")
    return _present(
        [
            ("data fingerprint", data.fingerprint if data else None),
            ("code SHA-256", record.code_sha256),
            ("training job", job.name if job else None),
            ("image", job.image_uri if job else None),
            ("model artifact", job.artifact_uri if job else None),
            ("model SHA-256", job.artifact_sha256 if job else None),
            ("model package", record.model_package_arn),
            ("approval", record.approval_status),
        ]
    )


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
    return _present(rows)


def conf_rows(record: RunRecord) -> list[Row]:
    """Return the run's conf, one row a field; what is not set is left out."""
    return _present(
        (name, value if isinstance(value, str) else json.dumps(value))
        for name, value in record.conf.items()
        if value not in (None, {}, [])
    )


def job_state(job: JobRecord) -> tuple[str, str]:
    """Return a job's status as the table shows it, and its tone."""
    finer = job.secondary_status
    said = job.status if finer in {None, job.status} else f"{job.status} ({finer})"
    tones = {"Completed": "good", "Failed": "bad", "Stopped": "bad"}
    return said, tones.get(job.status, "warn")


def moment(epoch: float | None) -> str:
    """Return a time as UTC to the second; empty for None."""
    return "" if epoch is None else f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _present(rows: Iterable[tuple[str, str | None]]) -> list[Row]:
    return [(name, value) for name, value in rows if value]


def _source(record: RunRecord) -> str:
    data = record.dataset
    uri = str(record.conf.get("source") or (data.source_uri if data else "") or "data")
    return uri if len(uri) <= 48 else f"…{uri[-46:]}"


def _usd(amount: float | None) -> str | None:
    return None if amount is None else format_usd(amount)


def _count(number: float | None) -> str | None:
    return None if number is None else f"{number:,.0f}"


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
