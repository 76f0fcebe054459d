"""Watches one job by rules: describes it, reads what is new of its statistics, reacts to what the rules find."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from distributed_training.hooks.aws_clients import AwsClients, ConnectionArguments
from distributed_training.hooks.notifications import notify_from_trigger
from distributed_training.hooks.objects import S3Address
from distributed_training.hooks.refusals import code_and_message, is_absent_object, typed
from distributed_training.triggers.follow import is_refusal
from distributed_training.triggers.pace import backoff_s
from include.errors import Severity, shortened
from include.rules.document import rules_document
from include.rules.evaluation import evidence
from include.rules.live_evaluation import planned_evaluation
from include.rules.reactions import Reaction, Reactions, planned_reactions, worst_reaction
from include.rules.rule import RuleAction
from include.rules.watch_plan import POLL_INTERVAL_S
from include.runs.notifier import rule_notice
from include.sagemaker_api.failures import is_unknown_job
from include.sagemaker_api.rule_stop import RuleStop, service_stop
from include.sagemaker_api.snapshot import JobSnapshot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from include.rules.evaluation import Issue
    from include.rules.live import Piece
    from include.rules.live_evaluation import LiveEvaluation
    from include.rules.watch_plan import WatchPlan
    from include.runs.notifier import Notifier

log = logging.getLogger(__name__)

STATISTICS_FOLDER = "statistics/"
DOCUMENT_NAME = "rule-output/rules.json"
MOST_TOLD = 50
"""Issues in the task's log and in its result; the document has the first twenty of each rule."""
_MOST_TEXT = 300
_REFUSALS_IN_A_ROW = 5
_TRANSIENT = (BotoCoreError, HTTPClientError, OSError, asyncio.TimeoutError)


def document_uri(snapshot: JobSnapshot) -> str:
    """Return where the verdicts on a training job lie: beside its output."""
    return f"{str(snapshot.output_path).rstrip('/')}/{snapshot.name}/{DOCUMENT_NAME}"


async def watch_job(
    job_name: str,
    *,
    plan: WatchPlan,
    connection: ConnectionArguments,
    absent_s: float,
    notifier: Notifier | None = None,
) -> dict[str, Any]:
    """Return `{"watched": result}` once the job has ended, `{"absent": name}` where it is not there for so long.

    A service that does not answer, fails or takes the credentials for expired is asked again with growing waits, for
    ever: the job runs on meanwhile.

    Raises:
        TrainingRunError: the service refuses, several times; or a line of the statistics is wrong.
    """
    look = RuleLook(
        job_name, plan, connection, gives_up_at=time.time() + absent_s, notifier=notifier
    )
    failures = refusals = 0
    try:
        while True:
            try:
                async with look:
                    told = await look.now()
            except ClientError as error:
                failures += 1
                refusals += is_refusal(error)
                if refusals >= _REFUSALS_IN_A_ROW:
                    ours = typed(error, where=f"watching job {job_name}")
                    raise ours from error
                delay = _after(error, failures)
            except _TRANSIENT as error:
                failures += 1
                delay = _after(error, failures)
            else:
                failures = refusals = 0
                if told is not None:
                    return told
                delay = plan.poll_interval_s or POLL_INTERVAL_S
            await asyncio.sleep(delay)
    finally:
        await look.close()


def _after(error: Exception, failures: int) -> float:
    delay = backoff_s(failures)
    log.warning("No answer from the service (%s); asking again in %.0f s", error, delay)
    return delay


@dataclass(slots=True)
class RuleLook:
    """Open clients, reading positions and verdicts of one watched job; clients are renewed after a failure."""

    job_name: str
    plan: WatchPlan
    connection: ConnectionArguments
    gives_up_at: float
    notifier: Notifier | None = None
    _hyperparameters: dict[str, str] = field(default_factory=dict)
    _live: LiveEvaluation | None = None
    _reactions: Reactions = field(init=False)
    _found: list[Reaction] = field(default_factory=list)
    _untold: list[Reaction] = field(default_factory=list)
    _stop: Reaction | None = None
    _is_tagged: bool = False
    _has_stopped: bool = False
    _stopped_by: Reaction | None = None
    _service_says: dict[str, str] = field(default_factory=dict)
    _open: AsyncExitStack | None = None
    _sagemaker: Any = None
    _s3: Any = None

    def __post_init__(self) -> None:
        self._reactions = planned_reactions(self.plan)

    async def __aenter__(self) -> Self:
        """Open the clients unless they are open."""
        if self._open is None:
            clients = AwsClients(self.connection)
            async with AsyncExitStack() as stack:
                enter = stack.enter_async_context
                self._sagemaker = await enter(await clients.async_client("sagemaker"))
                self._s3 = await enter(await clients.async_client("s3"))
                self._open = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the clients when the look failed; the next one reads the connection anew."""
        if kind is not None:
            await self.close()

    async def close(self) -> None:
        """Close the clients."""
        if self._open is not None:
            closing, self._open = self._open, None
            await closing.aclose()

    async def now(self) -> dict[str, Any] | None:
        """Look once and react; return what the trigger fires, None while there is nothing to fire.

        Raises:
            ContractError: a line of the statistics is wrong.
        """
        snapshot = await self._described()
        if snapshot is None:
            return {"absent": self.job_name} if time.time() > self.gives_up_at else None
        self._tell_service_rules(snapshot)
        if snapshot.started_at is not None:
            try:
                await self._read(snapshot)
            except Exception:
                await self._react(snapshot)  # to what was judged before the failure
                raise
            await self._react(snapshot)
            await self._notify()
        if not snapshot.is_terminal:
            return None
        self._stopped_by = await self._what_stopped(snapshot)
        await self._write_document(snapshot, stopped_by=self._stopped_by)
        return {"watched": self._result(snapshot)}

    async def _described(self) -> JobSnapshot | None:
        try:
            answer = await self._sagemaker.describe_training_job(TrainingJobName=self.job_name)
        except ClientError as error:
            if is_unknown_job(*code_and_message(error)):
                return None
            raise
        self._hyperparameters = answer.get("HyperParameters", {})
        return JobSnapshot.from_describe(answer)

    async def _read(self, snapshot: JobSnapshot) -> None:
        """Take what is new of the statistics, and note what is to follow, a bounded piece of work after the other."""
        if self._live is None:
            since = float(snapshot.created_at or 0.0)
            self._live = await asyncio.to_thread(planned_evaluation, self.plan, since=since)
        live, sizes = self._live, await self._sizes(snapshot)
        while True:
            wanted = live.wanted(sizes, is_final=snapshot.is_terminal)
            pieces = [(piece, await self._piece(piece)) for piece in wanted]
            # Of many lines it is seconds of work: not on the loop that all triggers share.
            issues = await asyncio.to_thread(_judged, live, pieces, _trains_since(snapshot))
            self._note([self._reactions.of(name, issue) for name, issue in issues])
            if not live.is_behind or not any(data for _, data in pieces):
                return

    async def _sizes(self, snapshot: JobSnapshot) -> dict[str, int]:
        """Return the sizes of the statistics in S3, by address; nothing for a job without checkpoints."""
        if snapshot.checkpoint_s3_uri is None:
            return {}
        at = S3Address.parse(f"{snapshot.checkpoint_s3_uri.rstrip('/')}/{STATISTICS_FOLDER}")
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=at.bucket, Prefix=at.key)
        return {
            f"s3://{at.bucket}/{each['Key']}": int(each["Size"])
            async for page in pages
            for each in page.get("Contents", ())
        }

    async def _piece(self, piece: Piece) -> bytes:
        at = S3Address.parse(piece.name)
        try:
            answer = await self._s3.get_object(
                Bucket=at.bucket, Key=at.key, Range=f"bytes={piece.start}-{piece.end - 1}"
            )
        except ClientError as error:
            if is_absent_object(*code_and_message(error)):
                return b""  # deleted since it was listed
            raise
        async with answer["Body"] as body:
            content: bytes = await body.read()
        return content

    def _note(self, new: list[Reaction]) -> None:
        worst = worst_reaction(new)
        if self._stop is None and worst is not None and worst.action is not RuleAction.WARN:
            self._stop = worst
        for each in new[: max(0, MOST_TOLD - len(self._found))]:
            said = evidence(rank=each.issue.rank, key=each.issue.key, text=each.issue.text)
            log.warning(
                "Rule %s, %s, at step %d: %s (%s)",
                each.name,
                each.issue.severity,
                each.issue.step,
                said,
                each.action,
            )
        self._found += new
        self._untold += new

    def _tell_service_rules(self, snapshot: JobSnapshot) -> None:
        for each in snapshot.rule_evaluations:
            if self._service_says.get(each["name"]) != each["status"]:
                self._service_says[each["name"]] = each["status"]
                log.info("Debugger's rule %s: %s %s", each["name"], each["status"], each["details"])

    async def _react(self, snapshot: JobSnapshot) -> None:
        """Stop the job where a rule asks for it: first what was found, then why on the job, then the stop.

        What fails of it is done again with the next look; neither document nor tag keeps the job from its stop.

        Raises:
            ClientError: the service refused the stop.
        """
        if self._stop is None:
            return
        if self._has_stopped and not self._is_tagged:
            await self._tag(snapshot, self._stop)
        if self._has_stopped or snapshot.status != "InProgress":
            return
        try:
            await self._write_document(snapshot, stopped_by=self._stop)
        except (ClientError, *_TRANSIENT) as error:
            log.warning("What stops job %s is not written down yet: %s", snapshot.name, error)
        log.warning("Job %s is stopped by rule %s", snapshot.name, self._stop.name)
        await self._tag(snapshot, self._stop)
        try:
            await self._sagemaker.stop_training_job(TrainingJobName=snapshot.name)
        except ClientError as error:
            if "in status" not in code_and_message(error)[1]:
                raise
            log.info("Job %s has ended by itself meanwhile", snapshot.name)
            return
        self._has_stopped = True

    async def _tag(self, snapshot: JobSnapshot, by: Reaction) -> None:
        fails = by.action is RuleAction.FAIL
        stop = RuleStop(rule=by.name, step=by.issue.step, fails=fails)
        try:
            await self._sagemaker.add_tags(ResourceArn=snapshot.arn, Tags=stop.tags)
        except (ClientError, *_TRANSIENT) as error:
            log.warning("Job %s is stopped without a mark why: %s", snapshot.name, error)
        else:
            self._is_tagged = True

    async def _notify(self) -> None:
        """Tell whom the run tells, once a rule; no one waits for a stop because of it."""
        errors = [each for each in self._untold if each.issue.severity is Severity.ERROR]
        first = {each.name: each for each in reversed(errors)}
        for each in first.values():
            notice = rule_notice(
                job_name=self.job_name,
                rule=each.name,
                step=each.issue.step,
                says=_told(each)["evidence"],
                was_stopped=self._has_stopped and each is self._stop,
            )
            await notify_from_trigger(AwsClients(self.connection), self.notifier, notice)
        self._untold.clear()

    async def _what_stopped(self, snapshot: JobSnapshot) -> Reaction | None:
        """Return what stopped a job that has ended: this watcher, or one before it that left its tag on the job."""
        if snapshot.status != "Stopped" or self._stop is None or self._has_stopped:
            return self._stop if snapshot.status == "Stopped" else None
        answer = await self._sagemaker.list_tags(ResourceArn=snapshot.arn)
        tag = RuleStop.from_tags(answer["Tags"])
        if tag is None:
            return None
        same = (
            each for each in self._found if (each.name, each.issue.step) == (tag.rule, tag.step)
        )
        return next(same, self._stop)

    async def _write_document(self, snapshot: JobSnapshot, *, stopped_by: Reaction | None) -> None:
        """Write the verdicts as they stand, with what stops or stopped the job."""
        if self._live is None:
            return
        at = S3Address.parse(document_uri(snapshot))
        body = await asyncio.to_thread(_document, self._live, snapshot, stopped_by)
        await self._s3.put_object(
            Bucket=at.bucket, Key=at.key, Body=body, ContentType="application/json"
        )

    def _result(self, snapshot: JobSnapshot) -> dict[str, Any]:
        service = service_stop(snapshot.rule_evaluations)
        return {
            "watched_job": snapshot.name,
            "job_status": snapshot.status,
            "num_records": self._live.num_records if self._live else 0,
            "num_issues": len(self._found),
            "issues": [_told(each) for each in self._found[:MOST_TOLD]],
            "stopped_by": None if self._stopped_by is None else _told(self._stopped_by),
            "service": None if service is None else asdict(service[0]),
            "rules_uri": document_uri(snapshot) if self._live else None,
        }


def _judged(
    live: LiveEvaluation, pieces: Sequence[tuple[Piece, bytes]], trains_since: float | None
) -> list[tuple[str, Issue]]:
    """Return the issues that the pieces brought, each with its rule's configured name.

    Raises:
        ContractError: a line is wrong.
    """
    for piece, data in pieces:
        live.take(piece, data)
    return live.judge(now=time.time(), trains_since=trains_since)


def _document(live: LiveEvaluation, snapshot: JobSnapshot, stopped_by: Reaction | None) -> bytes:
    document = {
        **rules_document(live.verdicts(is_final=snapshot.is_terminal)),
        "job": snapshot.name,
        "num_records": live.num_records,
        "stopped_by": None if stopped_by is None else _told(stopped_by),
    }
    return json.dumps(document, indent=1).encode()


def _trains_since(snapshot: JobSnapshot) -> float | None:
    """Return when the instances last began to train; None where they do not train now."""
    if snapshot.secondary_status != "Training":
        return None
    return max((t.start for t in snapshot.transitions if t.status == "Training"), default=None)


def _told(reaction: Reaction) -> dict[str, Any]:
    issue = reaction.issue
    return {
        "name": reaction.name,
        "rule": reaction.rule,
        "action": reaction.action,
        "severity": issue.severity,
        "step": issue.step,
        "rank": issue.rank,
        "key": issue.key,
        "evidence": shortened(
            evidence(rank=issue.rank, key=issue.key, text=issue.text), limit=_MOST_TEXT
        ),
        "time": issue.time,
    }
