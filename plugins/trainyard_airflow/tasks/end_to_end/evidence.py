"""Evidence for the report: the training's continuity, the files that prove it, and the rules' findings."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.errors import SpecError
from trainyard.rules.document import judge_log, merged, with_log
from trainyard.runs.continuity import Continuity, measure_continuity
from trainyard.runs.continuity.log_lines import read_log, write_log
from trainyard_airflow.hooks.training_log import training_log
from trainyard_airflow.triggers.rule_findings import LIVE_NAME, document_below

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.runs.record import JobRecord
    from trainyard_airflow.hooks.objects import S3Objects

log = logging.getLogger(__name__)

LOG_NAME, INDEX_NAME = "training_log.jsonl.gz", "index.json"
INCOMPLETE_LOG_NAME = "training_log.incomplete.jsonl.gz"
CONTINUITY_NAME, RULES_NAME = "continuity.json", "rules.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Evidence of a training for its report.

    Attributes:
        continuity: steps, interruptions and resumed checkpoints of its jobs, from their logs.
        rules: the content of rules.json; None if the rules could not be evaluated.
    """

    continuity: Continuity
    rules: dict[str, Any] | None


def write_proof(
    logs: Any,
    objects: S3Objects,
    *,
    jobs: Sequence[JobRecord],
    shard_index: Mapping[str, Any] | None,
    conf: Mapping[str, Any],
    to: str,
    output: str | None = None,
    has_failed_watch: bool = False,
) -> Proof:
    """Write training log, shard index, continuity.json and rules.json below `to`; return the last two.

    The task `watch_rules` may have written verdicts from the ranks' statistics. If these verdicts cover all
    started jobs, only the verdicts of `watch_rules` are used. Otherwise the rules are also evaluated on the
    log, which has less data, and the verdicts are merged. In rules.json, `judged` is the source of the
    verdicts: `statistics`, `log`, or `statistics and log`. If any job was watched, or the watch failed,
    `unwatched` lists the jobs that were not watched to their end.

    The log is first copied page by page to a compressed local file, so the copy needs little memory. Later, the
    whole compressed file is read into memory to write it to `to`. If the log cannot be read to its end, a
    warning is logged, and the continuity has the reason. The lines that were read are written as
    `training_log.incomplete.jsonl.gz`; neither continuity nor rules are evaluated on them.

    Args:
        logs: a boto3 client of CloudWatch Logs.
        objects: store to write to.
        jobs: the training task's jobs, oldest first.
        shard_index: the parsed index.json of the data set; None if there is none.
        conf: the run's conf, with its rules and the facts of the training.
        to: the report's prefix, `s3://bucket/...`.
        output: the training's output path, below which the verdicts of its jobs are stored; None if no task
            wrote any.
        has_failed_watch: whether the task `watch_rules` failed.

    Raises:
        TrainingRunError: S3 rejected a write.
    """
    with TemporaryDirectory(prefix="trainyard-log-") as folder:
        file = Path(folder) / LOG_NAME
        why_no_log = _copy_log(logs, jobs, file)
        lines = () if why_no_log else read_log(file)
        continuity = measure_continuity(lines, jobs, why_no_log=why_no_log)
        rules, unwatched = _watched(objects, jobs, output, has_failed_watch=has_failed_watch)
        if (rules is None or unwatched) and not why_no_log:
            by_log = _judged(file, conf, continuity, jobs)
            rules = _both(rules, by_log) if rules and by_log else by_log or rules
        if rules is not None and unwatched:
            rules["unwatched"] = unwatched
        name = INCOMPLETE_LOG_NAME if why_no_log else LOG_NAME
        objects.write(f"{to}/{name}", file.read_bytes(), content_type="application/gzip")
    if shard_index is not None:
        objects.write_json(f"{to}/{INDEX_NAME}", json.dumps(shard_index, indent=1))
    objects.write_json(f"{to}/{CONTINUITY_NAME}", continuity.to_json())
    if rules is not None:
        objects.write_json(f"{to}/{RULES_NAME}", json.dumps(rules, indent=1, allow_nan=False))
    return Proof(continuity=continuity, rules=rules)


def _watched(
    objects: S3Objects, jobs: Sequence[JobRecord], output: str | None, *, has_failed_watch: bool
) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the verdicts written during the training, and the names of the jobs not watched to their end.

    If a job was not watched to its end, its verdicts are those written before its watch failed. The verdicts
    come from the ranks' statistics or from the service's rules. If no job has any, the verdicts are None. In
    this case the list of names is empty, unless `has_failed_watch` is set.

    Without `output`, the result is (None, []).
    """
    if output is None:
        return None, []
    final = {job.name: objects.json_or_none(document_below(output, job.name)) for job in jobs}
    documents = [
        final[job.name] or objects.json_or_none(document_below(output, job.name, name=LIVE_NAME))
        for job in jobs
    ]
    written = [
        each for each in documents if each and (each["num_records"] or each.get("service_rules"))
    ]
    if not written and not has_failed_watch:
        return None, []
    unwatched = [job.name for job in jobs if job.started_at is not None and not final[job.name]]
    if unwatched:
        log.warning("Job %s has no final verdicts", ", ".join(unwatched))
    return {**merged(written), "judged": "statistics"} if written else None, unwatched


def _both(by_statistics: Mapping[str, Any], by_log: Mapping[str, Any]) -> dict[str, Any]:
    return {**with_log(by_statistics, by_log), "judged": "statistics and log"}


def _judged(
    file: Path, conf: Mapping[str, Any], continuity: Continuity, jobs: Sequence[JobRecord]
) -> dict[str, Any] | None:
    """Return the rules' verdicts on the log, or None if the log is empty or a rule is invalid."""
    rows = [
        {"time_ms": each.time_ms, "job": each.job, "stream": each.stream, "line": each.text}
        for each in read_log(file)
    ]
    failures = {job.name: job.failure_reason for job in jobs}
    if not rows:
        return None
    try:
        found = judge_log(rows, conf, continuity=continuity.to_dict(), failures=failures)
    except SpecError as error:
        log.warning("The report has no verdicts of rules, as they cannot be evaluated: %s", error)
        return None
    return {**found, "judged": "log"}


def _copy_log(logs: Any, jobs: Sequence[JobRecord], file: Path) -> str | None:
    """Write the log lines of all jobs to the file; return the reason if only a part can be read, or None."""
    try:
        write_log(file, (line for job in jobs for line in training_log(logs, job_name=job.name)))
    except (ClientError, BotoCoreError) as error:
        log.warning("The report has an incomplete training log, as it cannot be read: %s", error)
        return f"the training log could not be read: {error}; {INCOMPLETE_LOG_NAME} has the lines that were read before"
    return None
