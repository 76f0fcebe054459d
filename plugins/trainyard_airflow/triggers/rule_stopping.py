"""Stop of a watched job by a rule. The findings are first written to S3, and the reason to a tag of the job.

The job is stopped even if these cannot be written.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from trainyard.job_status import JobStatus
from trainyard.rules.rule import RuleAction
from trainyard.rules.watch_plan import IDLE_RULE
from trainyard.sagemaker_api.failures import has_ended
from trainyard.sagemaker_api.job_kinds import JOB_APIS, JobKind
from trainyard.sagemaker_api.rule_stop import RuleStop
from trainyard.sagemaker_api.stop_cause import StopCause, stop_cause
from trainyard_airflow.hooks.objects import S3Address
from trainyard_airflow.hooks.refusals import code_and_message
from trainyard_airflow.triggers.answers import FAULTS
from trainyard_airflow.triggers.rule_findings import DOCUMENT_NAME, document, document_uri

if TYPE_CHECKING:
    from trainyard.rules.live_evaluation import LiveEvaluation
    from trainyard.rules.reactions import Reaction
    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.triggers.rule_findings import RuleFindings

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RuleStopping:
    """Progress of stopping one job because of a rule. A failed tag or stop is retried at the next poll."""

    findings: RuleFindings
    has_stopped: bool = False
    _is_tagged: bool = False

    async def react(
        self, sagemaker: Any, s3: Any, snapshot: JobSnapshot, live: LiveEvaluation | None
    ) -> None:
        """Stop the job if a rule requires it, after writing the findings to S3 and the reason to a tag.

        The job is stopped even if these cannot be written. A failed tag is tried again at the next poll.

        Raises:
            ClientError: the service rejected the stop of a job that still runs.
        """
        stop = self.findings.stop
        if stop is None:
            return
        if self.has_stopped and not self._is_tagged:
            await self._tag(sagemaker, snapshot, stop)
        if self.has_stopped or snapshot.status != JobStatus.IN_PROGRESS:
            return
        try:
            await write_document(s3, snapshot, live, stopped_by=stop)
        except FAULTS as error:
            log.warning(
                "The reason for the stop of job %s is not written yet: %s", snapshot.name, error
            )
        log.warning("Job %s is stopped by rule %s", snapshot.name, stop.name)
        await self._tag(sagemaker, snapshot, stop)
        api = JOB_APIS[JobKind.TRAINING]
        try:
            await getattr(sagemaker, api.stop)(**api.named(snapshot.name))
        except ClientError as error:
            if not has_ended(*code_and_message(error)):
                raise
            log.info("Job %s has ended by itself meanwhile", snapshot.name)
            return
        self.has_stopped = True

    async def _tag(self, sagemaker: Any, snapshot: JobSnapshot, by: Reaction) -> None:
        try:
            await sagemaker.add_tags(ResourceArn=snapshot.arn, Tags=_tags(by))
        except FAULTS as error:
            log.warning(
                "The tag with the reason for the stop of job %s is not written yet: %s",
                snapshot.name,
                error,
            )
        else:
            self._is_tagged = True

    async def what_stopped(self, sagemaker: Any, snapshot: JobSnapshot) -> Reaction | None:
        """Return the reaction that stopped a job in status `Stopped`, or None if no rule stopped it.

        If this object did not request the stop, the rule and step in the job's tag identify the reaction.

        Raises:
            ClientError: the service rejected listing the tags.
        """
        stop = self.findings.stop
        if snapshot.status != JobStatus.STOPPED or stop is None or self.has_stopped:
            return stop if snapshot.status == JobStatus.STOPPED else None
        tags = (await sagemaker.list_tags(ResourceArn=snapshot.arn))["Tags"]
        tag, is_idle = RuleStop.from_tags(tags), stop_cause(tags) is StopCause.IDLE
        if tag is None and not is_idle:
            return None
        same = (
            each
            for each in self.findings.found
            if (
                _stops_idle(each)
                if tag is None
                else (each.name, each.issue.step) == (tag.rule, tag.step)
            )
        )
        return next(same, stop)


def _tags(by: Reaction) -> list[dict[str, str]]:
    """Return the tags for a job that a reaction stops.

    A stop for idle accelerators has a tag of its own, because it is not a verdict on the training.
    """
    if _stops_idle(by):
        return [StopCause.IDLE.tag]
    fails = by.action is RuleAction.FAIL
    return RuleStop(rule=by.name, step=by.issue.step, fails=fails, onset=by.issue.onset).tags


def _stops_idle(by: Reaction) -> bool:
    return by.rule == IDLE_RULE and by.action is RuleAction.STOP


async def write_document(
    s3: Any,
    snapshot: JobSnapshot,
    live: LiveEvaluation | None,
    *,
    stopped_by: Reaction | None,
    name: str = DOCUMENT_NAME,
) -> None:
    """Write to S3 the current verdicts and the reaction that stops the job; do nothing for a job that never trained.

    Raises:
        ClientError: S3 rejected the write.
    """
    if live is None:
        return
    at = S3Address.parse(document_uri(snapshot, name=name))
    body = await asyncio.to_thread(document, live, snapshot, stopped_by)
    await s3.put_object(Bucket=at.bucket, Key=at.key, Body=body, ContentType="application/json")
