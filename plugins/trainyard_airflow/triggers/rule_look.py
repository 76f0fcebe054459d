"""Watch of one job by rules: polls of job and statistics, evaluation, and stop of the job."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from trainyard.rules.live_evaluation import planned_evaluation
from trainyard.rules.reactions import Reaction, Reactions, planned_reactions
from trainyard.rules.service_rules import judged_elsewhere, service_issue
from trainyard.runs.live.accrual import accrued_usd
from trainyard.sagemaker_api.failures import is_unknown_job
from trainyard.sagemaker_api.snapshot import JobSnapshot, hyperparameters_of
from trainyard_airflow.hooks.notifications import notify_from_trigger
from trainyard_airflow.hooks.refusals import code_and_message
from trainyard_airflow.triggers.answers import FAULTS, Answers
from trainyard_airflow.triggers.job_feed import service_time
from trainyard_airflow.triggers.renewed_clients import RenewedClients
from trainyard_airflow.triggers.rule_findings import LIVE_NAME, RuleFindings
from trainyard_airflow.triggers.rule_stopping import RuleStopping, write_document
from trainyard_airflow.triggers.synced_statistics import SyncedStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainyard.rules.evaluation import Issue
    from trainyard.rules.live import Piece
    from trainyard.rules.live_evaluation import LiveEvaluation
    from trainyard.rules.watch_plan import WatchPlan
    from trainyard.runs.notifier import Notifier
    from trainyard_airflow.hooks.aws_clients import ConnectionArguments

log = logging.getLogger(__name__)


async def watch_job(
    job_name: str,
    *,
    plan: WatchPlan,
    connection: ConnectionArguments,
    absent_s: float,
    notifier: Notifier | None = None,
) -> dict[str, Any]:
    """Watch a job with rules to its end, and return `{"watched": result}`.

    If the job does not exist within `absent_s` seconds, return `{"absent": name}`.

    A poll can fail because a service is unreachable, throttles, has an internal error or rejects the
    credentials. It is then repeated without limit, after growing waits. The job continues meanwhile.

    Raises:
        TrainingRunError: the service rejected several consecutive polls for another reason, or a line of the
            statistics is invalid.
    """
    clients = RenewedClients(connection, "sagemaker", "s3")
    gives_up_at = time.time() + absent_s
    look = RuleLook(job_name, plan, clients, gives_up_at=gives_up_at, notifier=notifier)
    answers = Answers(where=f"watching job {job_name}")
    try:
        while True:
            try:
                async with clients:
                    event = await look.now()
            except FAULTS as error:
                delay = answers.delay_s(error)
            else:
                answers.answered()
                if event is not None:
                    return event
                delay = plan.pause_s
            await asyncio.sleep(delay)
    finally:
        await clients.close()


@dataclass(slots=True)
class RuleLook:
    """Watcher of one job, with its findings so far and its position in the job's statistics."""

    job_name: str
    plan: WatchPlan
    clients: RenewedClients
    gives_up_at: float
    notifier: Notifier | None = None
    findings: RuleFindings = field(default_factory=RuleFindings)
    _description: dict[str, Any] = field(default_factory=dict)
    _judged_by_service: set[str] = field(default_factory=set)
    _live: LiveEvaluation | None = None
    _statistics: SyncedStatistics = field(default_factory=lambda: SyncedStatistics(None))
    _elsewhere: frozenset[str] = frozenset()
    _noted: frozenset[tuple[object, ...]] = frozenset()
    _num_written: int = 0
    _reactions: Reactions = field(init=False)
    _stopping: RuleStopping = field(init=False)

    def __post_init__(self) -> None:
        self._reactions = planned_reactions(self.plan)
        self._stopping = RuleStopping(self.findings)

    async def now(self) -> dict[str, Any] | None:
        """Poll once and react; return the trigger's event, or None if the watch continues.

        Raises:
            ContractError: a line of the statistics is invalid.
        """
        snapshot = await self._described()
        if snapshot is None:
            return {"absent": self.job_name} if time.time() > self.gives_up_at else None
        self.findings.log_service_rules(snapshot)
        self.findings.note(list(self._found_by_service(snapshot)))
        if snapshot.started_at is not None:
            try:
                await self._read(snapshot)
            except Exception:
                await self._react(snapshot)  # to the issues found before the failure
                raise
            await self._react(snapshot)
            await self._write_news(snapshot)
            await self._notify(snapshot)
        if not snapshot.is_terminal:
            return None
        stopped_by = await self._stopping.what_stopped(self.clients["sagemaker"], snapshot)
        await write_document(self.clients["s3"], snapshot, self._live, stopped_by=stopped_by)
        return {"watched": self.findings.result(snapshot, self._live, stopped_by=stopped_by)}

    def _found_by_service(self, snapshot: JobSnapshot) -> Iterator[Reaction]:
        """Yield the reaction to each issue that the service's own rules found since the last poll."""
        for each in snapshot.rule_evaluations:
            rule = self._reactions.rule_named(each["name"])
            issue = service_issue(each, rule.severity) if rule else None
            if issue and each["name"] not in self._judged_by_service:
                self._judged_by_service.add(each["name"])
                yield self._reactions.of(each["name"], issue)

    async def _described(self) -> JobSnapshot | None:
        try:
            answer = await self.clients["sagemaker"].describe_training_job(
                TrainingJobName=self.job_name
            )
        except ClientError as error:
            if is_unknown_job(*code_and_message(error)):
                return None
            raise
        self._description = answer
        return JobSnapshot.from_describe(answer)

    async def _read(self, snapshot: JobSnapshot) -> None:
        """Evaluate the new statistics in bounded steps; store each new issue, with its reaction, in the findings."""
        elsewhere = judged_elsewhere(snapshot.rule_evaluations)
        if self._live is None or self._elsewhere - elsewhere:
            # If the service gave up a rule, all statistics are read again; known issues are not reported twice.
            self._elsewhere = elsewhere
            self._noted = frozenset(_mark(each.name, each.issue) for each in self.findings.found)
            self._statistics = SyncedStatistics.of(snapshot)
            self._live = await asyncio.to_thread(
                planned_evaluation,
                self.plan,
                since=float(snapshot.created_at or 0.0),
                hyperparameters=hyperparameters_of(self._description),
                judged_elsewhere=elsewhere,
            )
        while True:
            await self._evaluate(self._live, snapshot)
            if not self._statistics.is_behind:
                return

    async def _evaluate(self, live: LiveEvaluation, snapshot: JobSnapshot) -> None:
        """Evaluate the statistics that one poll finds."""
        statistics, s3, polled_at = self._statistics, self.clients["s3"], time.time()
        sizes = await statistics.look(s3)
        is_final = snapshot.is_terminal and not statistics.is_behind
        trains_since = _trains_since(snapshot)
        until = statistics.complete_until(polled_at, trains_since=trains_since)
        while True:
            wanted = live.wanted(sizes, is_final=is_final)
            pieces = [(piece, await statistics.read(s3, piece)) for piece in wanted]
            # Many lines take seconds: not on the event loop, which all triggers share.
            issues = await asyncio.to_thread(_judged, live, pieces, until, trains_since)
            new = [each for each in issues if _mark(*each) not in self._noted]
            self.findings.note([self._reactions.of(name, issue) for name, issue in new])
            if not live.is_behind or not any(data for _, data in pieces):
                return

    async def _react(self, snapshot: JobSnapshot) -> None:
        sagemaker, s3 = self.clients["sagemaker"], self.clients["s3"]
        await self._stopping.react(sagemaker, s3, snapshot, self._live)

    async def _write_news(self, snapshot: JobSnapshot) -> None:
        """Write the partial verdicts for the run's page if there are new findings; a failure is logged as a warning."""
        num_found = len(self.findings.found)
        is_written_anyway = snapshot.is_terminal or self.findings.stop is not None
        if num_found == self._num_written or is_written_anyway:
            return
        try:
            await write_document(
                self.clients["s3"], snapshot, self._live, stopped_by=None, name=LIVE_NAME
            )
        except FAULTS as error:
            log.warning("The findings so far of %s are not written: %s", snapshot.name, error)
        else:
            self._num_written = num_found

    async def _notify(self, snapshot: JobSnapshot) -> None:
        """Send the messages on new issues.

        The caller first stops the job if a rule requires it, because the stop must not wait for the messages.
        """
        cost_usd = accrued_usd(snapshot.to_dict(), now=service_time(self._description))
        has_stopped = self._stopping.has_stopped
        for notice in self.findings.notices(
            self.job_name, has_stopped=has_stopped, cost_usd=cost_usd
        ):
            await notify_from_trigger(self.clients.aws, self.notifier, notice)


def _mark(name: str, issue: Issue) -> tuple[object, ...]:
    """Return the key by which an issue is recognized when it is found again."""
    return name, issue.step, issue.rank, issue.key, issue.severity


def _judged(
    live: LiveEvaluation,
    pieces: Sequence[tuple[Piece, bytes]],
    until: float | None,
    trains_since: float | None,
) -> list[tuple[str, Issue]]:
    """Return the issues in new pieces of statistics, each with the configured name of its rule.

    Ranks are also checked for silence. For this check, `until` and `trains_since` have the same meaning as in
    `LiveEvaluation.judge`.

    Raises:
        ContractError: a line is invalid.
    """
    for piece, data in pieces:
        live.take(piece, data)
    return live.judge(until=until, trains_since=trains_since)


def _trains_since(snapshot: JobSnapshot) -> float | None:
    """Return the time at which the instances last began to train, epoch seconds; None if they do not train now."""
    if snapshot.secondary_status != "Training":
        return None
    return max((t.start for t in snapshot.transitions if t.status == "Training"), default=None)
