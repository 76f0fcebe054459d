"""Changes to the Create request of the next job after a rule stopped a training.

They concern the learning rate, the steps to skip, and the checkpoints from which the next job resumes.
"""

from __future__ import annotations

import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.rules.conf_facts import decoded
from trainyard.rules.rule_retry import ASK, RetryRemedy, skipped_steps, steps_text
from trainyard.sagemaker_api.request_parts import (
    STATISTICS_VARIABLE,
    checkpoints_of,
    folder_uri,
    hyperparameters_of,
    place_variables,
    puts_statistics,
    set_checkpoints,
    set_hyperparameter,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.rules.rule_retry import RuleRetry
    from trainyard_airflow.hooks.objects import S3Address

log = logging.getLogger(__name__)

STEP_FOLDER = re.compile(r"(?:^|/)(?:step|checkpoint)-(\d+)/")
"""Folder of a checkpoint that `trainyard_watch` or Hugging Face's Trainer wrote."""
WHOLE = ("/manifest.json", "/files.json")
"""Files that are written last in both kinds of checkpoint; if such a file exists, its checkpoint is complete."""
STREAM = re.compile(r"\d{4,}\.[^/]+/")
"""Folder of the objects that one host wrote in one attempt."""
COPIES_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierStop:
    """Stop of an earlier job of the task by a rule, or by its script at a non-finite value.

    Attributes:
        step: step at which the rule found the issue; None or 0 if it is not known.
        onset: step of the first violation that led to the issue; None or 0 if it is not known.
        checkpoints: S3 URI of the job's checkpoints.
        is_verdict: True if the task ended with this stop as its result, and somebody cleared the task later.
        chosen: the remedy that a human chose, or None.
    """

    step: int | None
    checkpoints: str
    onset: int | None = None
    is_verdict: bool = False
    chosen: RetryRemedy | None = None


def remedies(retry: RuleRetry, stops: Sequence[EarlierStop]) -> list[RetryRemedy]:
    """Return the remedy after each stop.

    `CONTINUE` resumes the training unchanged from the end of the last job.

    - If the retry's action is `ASK`, the remedy is the one that the person chose. It is `CONTINUE` if nobody
      chose a remedy, or if the person chose `END`.
    - Otherwise the first `retry.most` stops get the retry's action, and later stops get `CONTINUE`. A stop with
      `is_verdict` (the task ended with this stop, and was cleared later) gets `CONTINUE`, too. It still counts
      toward `retry.most`.
    """
    if retry.action == ASK:
        chosen = [each.chosen or RetryRemedy.CONTINUE for each in stops]
        return [RetryRemedy.CONTINUE if each is RetryRemedy.END else each for each in chosen]
    return [
        RetryRemedy.CONTINUE
        if each.is_verdict or number > retry.most
        else RetryRemedy(retry.action)
        for number, each in enumerate(stops, 1)
    ]


def learning_rate_of(request: Mapping[str, Any]) -> float:
    """Return the learning rate that a Create request sends.

    Raises:
        SpecError: the request has no learning rate to lower.
    """
    sent = hyperparameters_of(request).get("learning_rate")
    try:
        return float(json.loads(sent or ""))
    except (TypeError, ValueError):
        fault = Finding(
            where="hyperparameters.learning_rate",
            what=f"{'is not a number' if sent else 'is missing'}, so on_rule_stop cannot lower it",
            got=sent or "none",
            allowed="a number, or an empty on_rule_stop",
        )
        raise SpecError(fault, subject="on_rule_stop") from None


def checkpoints_in(s3: Any, uri: str | None) -> dict[int, str]:
    """Return the S3 folders of the script's complete checkpoints below a prefix, by step; none without a prefix."""
    from trainyard_airflow.hooks.objects import S3Address, keys_below
    from trainyard_airflow.hooks.refusals import refusals_typed

    if not uri:
        return {}
    at = S3Address.parse(folder_uri(uri))
    found = {}
    with refusals_typed(uri):
        for key in keys_below(s3, at):
            step = STEP_FOLDER.search(key)
            if step and key.endswith(WHOLE):
                found[int(step[1])] = f"s3://{at.bucket}/{key.rpartition('/')[0]}"
    return found


def change_request(
    s3: Any, request: dict[str, Any], retry: RuleRetry, *, stops: Sequence[EarlierStop]
) -> dict[str, Any]:
    """Change the Create request of the job that follows these stops; return the facts for its result.

    Args:
        s3: a boto3 client.
        request: request of the next job; changed in place.
        retry: settings of the retry.
        stops: stops of all earlier jobs that a rule or their script ended.

    Raises:
        SpecError: the learning rate is to be lowered, but the request has none.
    """
    last, taken = stops[-1], remedies(retry, stops)
    number = sum(each is not RetryRemedy.CONTINUE for each in taken)
    facts: dict[str, Any] = {"rule_retries": number}
    if retry.lowers:
        rate = learning_rate_of(request) * retry.factor ** taken.count(RetryRemedy.LOWER)
        set_hyperparameter(request, "learning_rate", rate)
        facts["learning_rate"] = rate
    pairs = list(zip(stops, taken, strict=True))
    spans = [skipped_steps(s.step, s.onset) for s, r in pairs if r is RetryRemedy.SKIP and s.step]
    if spans:
        already = decoded(hyperparameters_of(request)).get("skip_steps")
        facts["skip_steps"] = steps_text(str(already) if already else None, spans)
        set_hyperparameter(request, "skip_steps", facts["skip_steps"])
    checkpoints = checkpoints_of(request)
    if checkpoints and (taken[-1] is RetryRemedy.CONTINUE or not last.step):
        set_checkpoints(request, last.checkpoints)
    elif checkpoints and last.step:
        target = folder_uri(f"{checkpoints.rstrip('/')}-rule-retry-{number}")
        bad = (
            skipped_steps(last.step, last.onset)[0] if taken[-1] is RetryRemedy.SKIP else last.step
        )
        before = bad - retry.rollback_steps
        facts["resumes_at"] = _roll_back(s3, last.checkpoints, target, before=before)
        if puts_statistics(request):
            _bring_statistics(s3, last.checkpoints, target)
        set_checkpoints(request, target)
    log.info("A rule ended an earlier job of this task: %s", facts)
    return facts


def _roll_back(s3: Any, source: str, target: str, *, before: int) -> int:
    """Copy the newest checkpoint at or before step `before` to a new prefix; return its step, or 0 if there is none.

    Objects that an earlier try has copied are kept.
    """
    from trainyard_airflow.hooks.objects import S3Address, keys_below
    from trainyard_airflow.hooks.refusals import refusals_typed

    there = checkpoints_in(s3, target)
    if there:
        return max(there)
    old = {step: uri for step, uri in checkpoints_in(s3, source).items() if step <= before}
    if not old:
        return 0
    step = max(old)
    at, to = S3Address.parse(old[step] + "/"), S3Address.parse(target)
    folder = old[step].rpartition("/")[2]
    with refusals_typed(target):
        # The file that marks the checkpoint as complete is copied last.
        for key in sorted(keys_below(s3, at), key=lambda each: each.endswith(WHOLE)):
            name = f"{to.key}{folder}/{key.removeprefix(at.key)}"
            s3.copy({"Bucket": at.bucket, "Key": key}, to.bucket, name)
    return step


def _bring_statistics(s3: Any, source: str, target: str) -> None:
    """Copy the statistics of earlier jobs for the rules of the next job.

    `source` is the checkpoint prefix of the last job, and `target` is that of the next job. The function
    `place_variables` derives a statistics prefix from each. The statistics are copied from the first of these
    statistics prefixes to the second.

    Existing objects are kept. Traces are not copied, because no rule reads them. If S3 fails, a warning is
    logged, and the next job starts without the statistics that were not copied.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    from trainyard_airflow.hooks.objects import S3Address, keys_below

    at, to = (
        S3Address.parse(place_variables(uri)[STATISTICS_VARIABLE]) for uri in (source, target)
    )
    try:
        there = {key.removeprefix(to.key) for key in keys_below(s3, to)}
        names = [key.removeprefix(at.key) for key in keys_below(s3, at)]
        new = [name for name in names if name not in there and STREAM.match(name)]
        _copy(s3, new, at, to)
    except (BotoCoreError, ClientError) as error:
        log.warning(
            "Rules of the next job lack statistics of earlier jobs beside %s: %s", source, error
        )


def _copy(s3: Any, names: Sequence[str], at: S3Address, to: S3Address) -> None:
    """Copy objects concurrently; the first failure cancels the rest.

    Raises:
        ClientError: S3 rejected a copy.
        BotoCoreError: S3 did not answer.
    """

    def copy(name: str) -> None:
        source = {"Bucket": at.bucket, "Key": at.key + name}
        s3.copy_object(CopySource=source, Bucket=to.bucket, Key=to.key + name)

    pool = ThreadPoolExecutor(COPIES_AT_ONCE)
    try:
        for each in [pool.submit(copy, name) for name in names]:
            each.result()
    finally:
        pool.shutdown(cancel_futures=True)
