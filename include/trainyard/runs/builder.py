"""Builder of a run's record, from the results of its tasks. Only the DAG's and the run's ids are required."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trainyard.cost.job_cost import job_cost
from trainyard.runs.goodput import TrainingSpan, goodput
from trainyard.runs.record import (
    FAILED,
    STOPPED_BY_CAP,
    STOPPED_BY_RULE,
    STOPPED_IDLE,
    SUCCEEDED,
    DatasetRecord,
    JobRecord,
    MoneyStop,
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
    *,
    dag_id: str,
    run_id: str,
    run_type: str | None = None,
    started_at: float | None = None,
    ended_at: float | None = None,
    conf: Mapping[str, Any] | None = None,
    plan: Mapping[str, Any] | None = None,
    tasks: Iterable[Mapping[str, Any]] = (),
    jobs: Iterable[JobRecord] = (),
    dataset_uri: str | None = None,
    shard_index: Mapping[str, Any] | None = None,
    was_dataset_reused: bool = False,
    metric_lines: Iterable[str] = (),
    evaluation: Mapping[str, Any] | None = None,
    resources: Iterable[Mapping[str, Any]] = (),
    code_sha256: str | None = None,
    model: Mapping[str, Any] | None = None,
    links: Mapping[str, str] | None = None,
    continuity: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
    profile: Mapping[str, Any] | None = None,
    tuning: Mapping[str, Any] | None = None,
    ledger: Mapping[str, Any] | None = None,
    verdict: Mapping[str, Any] | None = None,
    cap_stop: MoneyStop | None = None,
    idle_stop: MoneyStop | None = None,
    failure: Mapping[str, Any] | None = None,
) -> RunRecord:
    """Return the record of a run, complete or not. Only the ids are required.

    Args:
        dag_id: id of the DAG.
        run_id: id of the run.
        run_type: Airflow's type of the run, such as `manual`.
        started_at: start of the run, epoch seconds.
        ended_at: end of the run, epoch seconds; None while it runs.
        conf: the run's conf.
        plan: the plan that preflight made.
        tasks: rows with task_id, state, start, end, try_number and map_index, without the reporting task.
        jobs: results of `job_record` for all attempts, oldest first.
        dataset_uri: prefix of the data set.
        shard_index: the parsed index.json.
        was_dataset_reused: whether the data set existed before the run.
        metric_lines: the lines of metrics.jsonl.
        evaluation: the parsed evaluation.json.
        resources: samples of the hosts, as `RunRecord` has them.
        code_sha256: digest of the code archive.
        model: result of the registration, with model_package_arn, model_package_group and approval_status.
        links: addresses by name.
        continuity: content of continuity.json.
        rules: content of rules.json.
        profile: summary of the profile.
        tuning: content of tuning.json, the run's search.
        ledger: the paid resources, as `Ledger.to_dict` returns them.
        verdict: the verdict of the rule that ended the training.
        cap_stop: the stop of a training by its cost cap.
        idle_stop: the stop of a training whose accelerators were idle.
        failure: task_id and the error's `to_dict()`, optionally with log_tail, a list of lines.
    """
    task_records = tuple(_task(each) for each in tasks)
    job_records = tuple(jobs)
    history = thinned(read_events(metric_lines), MOST_EVENTS)
    registered = dict(model or {})
    return RunRecord(
        run_id=run_id,
        dag_id=dag_id,
        status=_status(task_records, failure, verdict, cap_stop, idle_stop),
        run_type=run_type,
        started_at=started_at,
        ended_at=ended_at,
        conf=dict(conf or {}),
        plan=dict(plan or {}),
        tasks=task_records,
        jobs=job_records,
        dataset=_dataset(dataset_uri, shard_index, was_reused=was_dataset_reused),
        history=history,
        evaluation=finite(evaluation or {}),
        resources=tuple(dict(each) for each in resources),
        code_sha256=code_sha256,
        model_package_arn=registered.get("model_package_arn"),
        model_package_group=registered.get("model_package_group"),
        approval_status=registered.get("approval_status"),
        cost=run_money(job_records, plan or {}, history, conf or {}, ledger),
        links=dict(links or {}),
        continuity=None if continuity is None else dict(continuity),
        rules=None if rules is None else dict(rules),
        profile=None if profile is None else dict(profile),
        tuning=None if tuning is None else dict(tuning),
        goodput=_goodput(
            started_at, ended_at, task_records, job_records, continuity or {}, profile or {}
        ),
        ledger=None if ledger is None else dict(ledger),
        verdict=None if verdict is None else dict(verdict),
        cap_stop=cap_stop,
        idle_stop=idle_stop,
        failure=None if failure is None else dict(failure),
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

    `attempts` is the number of this job among the jobs of its task, from 1.
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
    """Return the mapping with None in place of NaN and infinity, at any depth, which JSON cannot represent."""
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
    started_at: float | None,
    ended_at: float | None,
    tasks: Sequence[TaskRecord],
    jobs: Sequence[JobRecord],
    continuity: Mapping[str, Any],
    profile: Mapping[str, Any],
) -> dict[str, Any] | None:
    if started_at is None or ended_at is None:
        return None
    step_time = profile.get("step_time") or {}
    return goodput(
        begun_at=started_at,
        ended_at=ended_at,
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


def _status(
    tasks: Sequence[TaskRecord],
    failure: Mapping[str, Any] | None,
    verdict: Mapping[str, Any] | None,
    cap_stop: MoneyStop | None,
    idle_stop: MoneyStop | None,
) -> str:
    states = {task.state for task in tasks if not task.is_failed_watch}
    if failure is not None or states & _FAILED_STATES:
        return FAILED
    if verdict is not None:
        return STOPPED_BY_RULE
    if cap_stop is not None:
        return STOPPED_BY_CAP
    if idle_stop is not None:
        return STOPPED_IDLE
    is_over = states <= {"success", "skipped", "removed"}
    return SUCCEEDED if tasks and is_over else "running"


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
