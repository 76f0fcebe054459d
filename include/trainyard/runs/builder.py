"""Builder of a run's record, from the results of its tasks. Only the DAG's and the run's ids are required."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from trainyard.cost.job_cost import job_cost
from trainyard.runs.goodput import TrainingSpan, goodput
from trainyard.runs.record import (
    FAILED,
    RUNNING,
    STOPPED_BY_CAP,
    STOPPED_BY_RULE,
    STOPPED_IDLE,
    SUCCEEDED,
    DatasetRecord,
    JobRecord,
    RunRecord,
    ShardRecord,
    SourceRecord,
    TaskRecord,
)
from trainyard.runs.run_money import run_money

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MOST_EVENTS = 2000
_FAILED_STATES = frozenset({"failed", "upstream_failed"})
_SPLITS = ("train", "validation", "test")


def build_run_record(
    known: RunRecord,
    *,
    tasks: Iterable[Mapping[str, Any]] = (),
    jobs: Iterable[JobRecord] = (),
    dataset_uri: str | None = None,
    shard_index: Mapping[str, Any] | None = None,
    was_dataset_reused: bool = False,
    metric_lines: Iterable[str] = (),
    model: Mapping[str, Any] | None = None,
) -> RunRecord:
    """Return the record of a run, complete or not, with its status, costs and goodput.

    Args:
        known: record with the fields that are stored unchanged, such as the ids, the conf and the ledger.
        tasks: rows with task_id, state, start, end, try_number and map_index, without the reporting task.
        jobs: results of `job_record` for all attempts, oldest first.
        dataset_uri: prefix of the data set.
        shard_index: the parsed index.json.
        was_dataset_reused: whether the data set existed before the run.
        metric_lines: the lines of metrics.jsonl.
        model: result of the registration, with model_package_arn, model_package_group and approval_status.
    """
    task_records = tuple(_task(each) for each in tasks)
    job_records = tuple(jobs)
    history = thinned(read_events(metric_lines), MOST_EVENTS)
    registered = model or {}
    return replace(
        known,
        status=_status(task_records, known),
        tasks=task_records,
        jobs=job_records,
        dataset=_dataset(dataset_uri, shard_index, was_reused=was_dataset_reused),
        history=history,
        evaluation=finite(known.evaluation),
        model_package_arn=registered.get("model_package_arn"),
        model_package_group=registered.get("model_package_group"),
        approval_status=registered.get("approval_status"),
        cost=run_money(job_records, known.plan, history, known.conf, known.ledger),
        goodput=_goodput(known, task_records, job_records),
    )


def job_record(
    task_id: str,
    snapshot: Mapping[str, Any],
    *,
    attempts: int = 1,
    artifact_sha256: str | None = None,
    links: Mapping[str, str] | None = None,
) -> JobRecord:
    """Return the record of a job from its snapshot (`JobSnapshot.to_dict`), with its cost.

    `attempts` is the job's position among the jobs of its task; the first job has the position 1.
    """
    same = {name: snapshot.get(name) for name in _SAME_NAMES}
    return JobRecord(
        task_id=task_id,
        name=snapshot["name"],
        kind=snapshot["kind"],
        status=snapshot["status"],
        arn=snapshot.get("arn", ""),
        instance_count=snapshot.get("instance_count") or 1,
        instance_groups=tuple(dict(each) for each in snapshot.get("instance_groups") or ()),
        is_spot=bool(snapshot.get("is_spot")),
        attempts=attempts,
        interruptions=snapshot.get("interruptions") or 0,
        final_metrics=finite(snapshot.get("final_metrics") or {}),
        artifact_uri=snapshot.get("model_artifact"),
        artifact_sha256=artifact_sha256,
        failure_reason=snapshot.get("failure_reason") or snapshot.get("exit_message"),
        transitions=tuple(dict(each) for each in snapshot.get("transitions", ())),
        cost=job_cost(snapshot).to_dict(),
        links=dict(links or {}),
        **same,
    )


_SAME_NAMES = (
    "secondary_status",
    "instance_type",
    "training_plan",
    "training_seconds",
    "billable_seconds",
    "created_at",
    "started_at",
    "ended_at",
    "image_uri",
    "image_digest",
    "image_digest_unknown",
    "rung",
    "rung_reason",
)


def read_events(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the metric events of JSON lines in order; unreadable lines are skipped."""
    return [finite(each) for each in json_objects(lines) if "event" in each]


def json_objects(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of the lines; other lines, such as one cut off by a killed process, are skipped."""
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def thinned(events: Sequence[Mapping[str, Any]], most: int) -> tuple[Mapping[str, Any], ...]:
    """Return the events, with the step events evenly thinned to about `most`; the last step is kept."""
    steps = [index for index, event in enumerate(events) if event["event"] == "step"]
    stride = math.ceil(len(steps) / most) if most else 1
    if stride <= 1:
        return tuple(events)
    kept = {*steps[::stride], steps[-1]}
    return tuple(e for i, e in enumerate(events) if e["event"] != "step" or i in kept)


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping with None in place of NaN and infinity at any depth: JSON has neither."""
    return {key: _finite(value) for key, value in values.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return finite(value)
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _task(each: Mapping[str, Any]) -> TaskRecord:
    return TaskRecord(
        task_id=each["task_id"],
        state=each.get("state"),
        start=each.get("start"),
        end=each.get("end"),
        try_number=each.get("try_number") or 0,
        map_index=-1 if each.get("map_index") is None else each["map_index"],
        asked_at=each.get("asked_at"),
        answered_at=each.get("answered_at"),
    )


def _goodput(
    known: RunRecord, tasks: Sequence[TaskRecord], jobs: Sequence[JobRecord]
) -> dict[str, Any] | None:
    if known.started_at is None or known.ended_at is None:
        return None
    continuity = known.continuity or {}
    step_time = (known.profile or {}).get("step_time") or {}
    return goodput(
        begun_at=known.started_at,
        ended_at=known.ended_at,
        tasks=[asdict(each) for each in tasks],
        jobs=[asdict(each) for each in jobs],
        starts=list(_starts(continuity)),
        stall_seconds=continuity.get("stall_seconds") or 0.0,
        data_wait_share=(step_time.get("shares") or {}).get("data_wait", 0.0),
    ).to_dict()


def _starts(continuity: Mapping[str, Any]) -> Iterator[TrainingSpan]:
    attempts = continuity.get("attempts", ())
    for each, after in zip(attempts, [*attempts[1:], None], strict=False):
        if each["started_at"] is None:
            continue
        ended_at, lost = each["ended_at"], each["lost_work_seconds"]
        is_lost = bool(ended_at and lost)
        yield TrainingSpan(
            job=each["job"],
            at=each["started_at"],
            lost_from=ended_at - lost if is_lost else None,
            lost_until=ended_at if is_lost else None,
            restarted_from=ended_at if after and _instances(after) == _instances(each) else None,
        )


def _instances(attempt: Mapping[str, Any]) -> tuple[str, int]:
    return attempt["job"], attempt["instance_attempt"]


def _status(tasks: Sequence[TaskRecord], known: RunRecord) -> str:
    states = {task.state for task in tasks if not task.is_failed_watch}
    if known.failure is not None or states & _FAILED_STATES:
        return FAILED
    if known.verdict is not None:
        return STOPPED_BY_RULE
    if known.cap_stop is not None:
        return STOPPED_BY_CAP
    if known.idle_stop is not None:
        return STOPPED_IDLE
    is_over = states <= {"success", "skipped", "removed"}
    return SUCCEEDED if tasks and is_over else RUNNING


def _dataset(
    uri: str | None, index: Mapping[str, Any] | None, *, was_reused: bool
) -> DatasetRecord | None:
    if not index:
        return None
    source, baseline = index.get("source") or {}, index.get("baseline") or {}
    splits = index.get("splits") or {}
    names = [*(n for n in _SPLITS if n in splits), *(n for n in splits if n not in _SPLITS)]
    shards = tuple(
        ShardRecord(
            split=name,
            file=shard["file"],
            rows=shard["rows"],
            bytes=shard["bytes"],
            sha256=shard["sha256"],
            tokens=shard.get("num_tokens"),
        )
        for name in names
        for shard in splits[name]["shards"]
    )
    mixture = tuple(
        SourceRecord(
            name=each["name"],
            share=each["share"],
            source_uri=each["source"].get("uri"),
            dataset_uri=each["dataset_uri"],
            train_tokens=each["num_tokens"]["train"],
        )
        for each in index.get("sources") or ()
    )
    return DatasetRecord(
        mixture=mixture,
        uri=uri or "",
        fingerprint=index["fingerprint"],
        kind=index.get("kind", ""),
        source_uri=source.get("uri"),
        source_bytes=source.get("bytes"),
        source_files=source.get("files"),
        tokenizer=(index.get("tokenizer") or {}).get("name"),
        bad_rows=(index.get("bad_rows") or {}).get("count", 0),
        was_reused=was_reused,
        unigram_loss=baseline.get("unigram_loss_nats"),
        shards=shards,
    )
