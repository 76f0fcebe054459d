"""Retry after a rule's stop: a request with changed learning rate and checkpoints."""

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
from trainyard.sagemaker_api.request_parts import STATISTICS_VARIABLE, folder_uri, place_variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.rules.rule_retry import RuleRetry
    from trainyard_airflow.hooks.objects import S3Address

log = logging.getLogger(__name__)

STEP_FOLDER = re.compile(r"(?:^|/)(?:step|checkpoint)-(\d+)/")
"""Folder of a checkpoint by `trainyard_watch`, or by Hugging Face's Trainer."""
WHOLE = ("/manifest.json", "/files.json")
"""Last written files of both kinds of checkpoint; their presence means that the checkpoint is complete."""
STREAM = re.compile(r"\d{4,}\.[^/]+/")
"""Folder of the objects that one host put in one attempt."""
COPIES_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierStop:
    """A stop by a rule of an earlier job of the task.

    Attributes:
        step: step of the issue; None or 0 if it is not known.
        onset: step of the first violation that led to it; None or 0 if it is not known.
        checkpoints: S3 URI of the job's checkpoints.
        is_verdict: whether the stop was the task's result, after which somebody cleared the task.
        chosen: the remedy that a human chose, or None.
    """

    step: int | None
    checkpoints: str
    onset: int | None = None
    is_verdict: bool = False
    chosen: RetryRemedy | None = None


def remedies(retry: RuleRetry, stops: Sequence[EarlierStop]) -> list[RetryRemedy]:
    """Return the remedy after each stop.

    A last stop that was the task's result, and stops beyond `retry.most`, have `CONTINUE`: the training resumes
    unchanged from the end of the last job.
    """
    if retry.action == ASK:
        chosen = [each.chosen or RetryRemedy.CONTINUE for each in stops]
        return [RetryRemedy.CONTINUE if each is RetryRemedy.END else each for each in chosen]
    number = min(len(stops) - stops[-1].is_verdict, retry.most)
    return [RetryRemedy(retry.action)] * number + [RetryRemedy.CONTINUE] * (len(stops) - number)


def learning_rate_of(request: Mapping[str, Any]) -> float:
    """Return the learning rate that a Create request sends.

    Raises:
        SpecError: the request has no learning rate to lower.
    """
    sent = request.get("HyperParameters", {}).get("learning_rate")
    try:
        return float(json.loads(sent))
    except (TypeError, ValueError):
        fault = Finding(
            where="hyperparameters.learning_rate",
            what="is not a number, so on_rule_stop cannot lower it"
            if sent
            else "is missing, so on_rule_stop cannot lower it",
            got="none" if sent is None else sent,
            allowed="a number, or an empty on_rule_stop",
        )
        raise SpecError([fault], subject="on_rule_stop") from None


def checkpoints_in(s3: Any, uri: str) -> dict[int, str]:
    """Return the complete checkpoints of the script below a prefix, folders by step."""
    from trainyard_airflow.hooks.objects import S3Address, keys_below
    from trainyard_airflow.hooks.refusals import refusals_typed

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
    """Change the Create request of the job after these stops; return the facts for its result.

    Args:
        s3: a boto3 client.
        request: request of the next job; changed in place.
        retry: settings of the retry.
        stops: stops of all earlier jobs that a rule ended.

    Raises:
        SpecError: the learning rate is to be lowered, but the request has none.
    """
    last, taken = stops[-1], remedies(retry, stops)
    number = sum(each is not RetryRemedy.CONTINUE for each in taken)
    facts: dict[str, Any] = {"rule_retries": number}
    hyperparameters = request["HyperParameters"]
    if retry.lowers:
        rate = learning_rate_of(request) * retry.factor ** taken.count(RetryRemedy.LOWER)
        hyperparameters["learning_rate"] = json.dumps(rate)
        facts["learning_rate"] = rate
    pairs = list(zip(stops, taken, strict=True))
    spans = [skipped_steps(s.step, s.onset) for s, r in pairs if r is RetryRemedy.SKIP and s.step]
    if spans:
        facts["skip_steps"] = steps_text(_skipped_already(hyperparameters), spans)
        hyperparameters["skip_steps"] = json.dumps(facts["skip_steps"])
    config = request.get("CheckpointConfig")
    if config and (taken[-1] is RetryRemedy.CONTINUE or not last.step):
        _set_checkpoints(request, last.checkpoints)
    elif config and last.step:
        target = folder_uri(f"{config['S3Uri'].rstrip('/')}-rule-retry-{number}")
        bad = (
            skipped_steps(last.step, last.onset)[0] if taken[-1] is RetryRemedy.SKIP else last.step
        )
        before = bad - retry.rollback_steps
        facts["resumes_at"] = _roll_back(s3, last.checkpoints, target, before=before)
        if STATISTICS_VARIABLE in (request.get("Environment") or {}):
            _bring_statistics(s3, last.checkpoints, target)
        _set_checkpoints(request, target)
    log.info("A rule ended the training before: %s", facts)
    return facts


def _set_checkpoints(request: dict[str, Any], uri: str) -> None:
    request["CheckpointConfig"] = {**request["CheckpointConfig"], "S3Uri": uri}
    variables, places = request.get("Environment") or {}, place_variables(uri)
    told = {name: places[name] for name in places.keys() & variables.keys()}
    if told:
        request["Environment"] = {**variables, **told}


def _skipped_already(hyperparameters: Mapping[str, str]) -> str | None:
    given = decoded(hyperparameters).get("skip_steps")
    return str(given) if given else None


def _roll_back(s3: Any, source: str, target: str, *, before: int) -> int:
    """Copy the newest checkpoint up to a step to a new prefix; return its step, or 0 if there is none.

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
    """Copy the statistics beside the checkpoints at `source` to those at `target`, for the rules of the next job.

    Existing objects are kept. Traces are not copied, because no rule reads them. If S3 fails, the next job starts
    without them.
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
    """Copy objects, several at once; the first failure ends it.

    Raises:
        ClientError: S3 refused.
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
