"""`RuleStopPolicy`: after a stop by a rule, return the verdict, retry with a remedy, or ask a human."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainyard.errors import RuleViolatedError
from trainyard.rules.rule import RuleAction
from trainyard.rules.rule_retry import ASK, RetryRemedy, read_retry
from trainyard.rules.watch_plan import WatchPlan
from trainyard.sagemaker_api.rule_stop import RuleStop, remedy_tag
from trainyard.units import at_step
from trainyard_airflow.jobs.attempts import NextAction
from trainyard_airflow.jobs.end_policy import EndPolicy
from trainyard_airflow.jobs.rule_retry import change_request, learning_rate_of
from trainyard_airflow.jobs.steps import Again, AskHuman, Done

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.rules.rule_retry import RuleRetry
    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.jobs.attempts import Standing
    from trainyard_airflow.jobs.rule_retry import EarlierStop
    from trainyard_airflow.jobs.rule_stops import RuleStops
    from trainyard_airflow.jobs.steps import Step
    from trainyard_airflow.jobs.task_jobs import TaskJobs
    from trainyard_airflow.jobs.task_memory import TaskMemory

log = logging.getLogger(__name__)

ENDED_BY_RULE = "rule"
_GUARD = "NonFinite"


class RuleStopPolicy(EndPolicy):
    """Policy for stops by a `CheckRulesOperator`, by the service's Debugger, or by the script at a non-finite value.

    Such a value is a loss or gradient norm that is NaN or infinite.

    Args:
        jobs: the task's jobs.
        memory: state of the task that survives its starts.
        watch: the `WatchPlan` of the rules that run beside the job, or a mapping of its fields; None without rules.
    """

    def __init__(self, jobs: TaskJobs, memory: TaskMemory, *, watch: Any) -> None:
        self._jobs = jobs
        self._memory = memory
        self._watch = watch

    def standing(self, standing: Standing) -> Standing:
        """Return the task's state, changed if a person must decide before the next job is submitted.

        If the script ended a job at a non-finite value, the rules' plan can require a person's decision. Until the
        decision, the next action is to report that job, not to submit a new one. If the person decides to end the
        training, this remains the next action.
        """
        if standing.step is not NextAction.SUBMIT or not standing.earlier:
            return standing
        *earlier, last = standing.earlier
        if self._was_reported(last) or not self._awaits_answer(last):
            return standing
        return replace(
            standing,
            step=NextAction.REPORT,
            attempt=standing.attempt - 1,
            snapshot=last,
            earlier=tuple(earlier),
        )

    def change(self, request: dict[str, Any], *, name: str) -> dict[str, Any]:
        """Change the request in place as the retry of the `WatchPlan` requires; return facts about the change.

        The request is unchanged if the `WatchPlan` has no retry, or if no earlier job was ended by a rule or by its
        script.

        Raises:
            SpecError: the retry lowers the learning rate, but the request has none.
        """
        if self.retry is None:
            return {}
        if self.retry.lowers:
            learning_rate_of(request)
        stops = self._stops_before(name)
        if not stops:
            return {}
        return change_request(self._jobs.clients.client("s3"), request, self.retry, stops=stops)

    def hands_on(self, snapshot: JobSnapshot) -> bool:
        """Return whether the verdict of a rule that stopped the job is the task's result.

        It is not the result if an earlier start has already returned it, or if a human chose to continue the training.
        """
        return not self._was_reported(snapshot) and self._verdict_of(snapshot) is not None

    def ended(self, snapshot: JobSnapshot, result: Mapping[str, Any]) -> Step | Again | None:
        """Return the task's next step if a rule stopped the job, or the script ended it at a non-finite value.

        The result is None for any other job. After a non-finite value, it is also None if the plan has no rule for
        such values, or if that rule's action is only a warning.

        Raises:
            RuleViolatedError: the rule's action is `fail`.
        """
        if snapshot.succeeded:
            return None
        if (found := self._verdict_of(snapshot)) is not None:
            stop, evidence = found
            return self._ended_by_rule(
                snapshot, result, stop, evidence or self._stops.evidence(snapshot)
            )
        diverged = self._guarded(snapshot)
        action = None if diverged is None else self._guard_action
        if diverged is None or action in {None, RuleAction.WARN}:
            return None
        step, evidence = diverged
        stop = RuleStop(rule=_GUARD, step=step, fails=action is RuleAction.FAIL)
        return self._ended_by_rule(snapshot, result, stop, f"{evidence}, reported by the script")

    def answered(
        self, chosen: RetryRemedy, by: str, result: Mapping[str, Any], verdict: Mapping[str, Any]
    ) -> Step | Again:
        """Tag the stopped job with the chosen remedy, and return the next step.

        Args:
            chosen: the remedy. If nobody chose an allowed remedy in time, it is the default of `on_stop` in the
                `WatchPlan`, or `RetryRemedy.END` if the verdict does not permit that default.
            by: the person who chose the remedy. If nobody chose an allowed remedy in time, a text that explains why
                the default applies.
            result: result of the stopped job, as stored with the question to the person.
            verdict: verdict on the stopped job, as stored with the question to the person.

        Raises:
            TrainingRunError: the service rejected the tag, and nothing was started.
        """
        log.warning("After rule %s: %s, chosen by %s", verdict["rule"], chosen, by)
        self._jobs.service.add_tag(result["arn"], remedy_tag(chosen))
        return self._go_on(chosen, result, {**verdict, "decided_by": by})

    @cached_property
    def retry(self) -> RuleRetry | None:
        """The settings of the `WatchPlan` for a retry after a rule stopped a job; None if it has no such settings."""
        return planned_retry(self._watch)

    def _ended_by_rule(
        self, snapshot: JobSnapshot, result: Mapping[str, Any], stop: RuleStop, evidence: str
    ) -> Step | Again:
        verdict = self._stops.verdict(snapshot, stop, evidence)
        checkpoint = verdict["last_checkpoint"] or "none"
        log.warning(
            "Job %s was ended by rule %s at step %s: %s. Last checkpoint: %s",
            snapshot.name,
            stop.rule,
            stop.step,
            evidence,
            checkpoint,
        )
        retry = None if stop.fails else self._retry_after(snapshot, stop)
        if retry and retry.action == ASK:
            chosen = self._chosen(snapshot)
            if chosen is not None:
                return self._go_on(chosen, result, verdict)
            log.warning(
                "A person is asked how the training continues (Required Actions): %s", retry
            )
            return AskHuman(retry=retry, result=result, verdict=verdict)
        self._memory.note_reported(int(result["attempt"]))
        if retry:
            log.warning("The training continues: %s", retry)
            return Again()
        self._memory.note_verdict(int(result["attempt"]))
        if stop.fails:
            raise RuleViolatedError(
                f"rule {stop.rule} ended the training{at_step(stop.step)}",
                where=f"job {snapshot.name}",
                got=evidence,
                next_step=f"correct the cause that the rule reports (last checkpoint: {checkpoint})",
            )
        return _verdict_step(result, verdict)

    def _go_on(
        self, chosen: RetryRemedy, result: Mapping[str, Any], verdict: Mapping[str, Any]
    ) -> Step | Again:
        """Return what follows the remedy for a stopped job: another attempt, or the end with the verdict.

        The remedy `chosen` is already stored as a tag of the job.
        """
        self._memory.note_reported(int(result["attempt"]))
        if chosen is not RetryRemedy.END:
            return Again()
        self._memory.note_verdict(int(result["attempt"]))
        return _verdict_step(result, verdict)

    def _retry_after(self, snapshot: JobSnapshot, stop: RuleStop) -> RuleRetry | None:
        """Return the retry that follows a stop; None if the training ends with it."""
        retry = self.retry
        if retry is None or len(self._stops_before(snapshot.name)) >= retry.most:
            return None
        if retry.action == RetryRemedy.SKIP and not stop.step:
            log.warning("Rule %s reported no step: there is no batch to skip", stop.rule)
            return None
        return retry

    def _stops_before(self, name: str) -> list[EarlierStop]:
        """Return an `EarlierStop` for each of the task's earlier jobs that a rule or the job's own script stopped.

        The earlier jobs are the jobs of all attempts before the job `name`.
        """
        stops: list[EarlierStop] = []
        verdicts, attempt = self._memory.verdict_attempts, 0
        while (job := self._jobs.name_of(attempt + 1)) != name:
            attempt += 1
            stop = self._stops.earlier(job, is_verdict=attempt in verdicts, asks=self._asks)
            if stop is not None:
                stops.append(stop)
        return stops

    def _verdict_of(self, job: JobSnapshot) -> tuple[RuleStop, str] | None:
        """Return the rule that stopped a job, and its evidence; None if no rule did, or a human chose to continue."""
        found = self._stops.of(job)
        goes_on = found is not None and self._chosen(job) not in {None, RetryRemedy.END}
        return None if goes_on else found

    def _was_reported(self, job: JobSnapshot) -> bool:
        """Return whether the task has already reacted to the job's end: by a result, an error or the next attempt."""
        newest = self._memory.reported_attempt or 0
        return job.name in {self._jobs.name_of(attempt) for attempt in range(1, newest + 1)}

    def _awaits_answer(self, job: JobSnapshot) -> bool:
        """Return whether the job's script ended it at a non-finite value, and no person has chosen to continue.

        The result is True while the question to a person is open, and after the answer "End the training". It is
        False if the plan requires no question after such an end.
        """
        return (
            self._asks
            and self._guarded(job) is not None
            and self._guard_action is RuleAction.STOP
            and self._chosen(job) in {None, RetryRemedy.END}
        )

    def _guarded(self, job: JobSnapshot) -> tuple[int, str] | None:
        """Return (step, evidence) of a job that its script ended at a non-finite value.

        None for any other job, and for a task without rules.
        """
        from trainyard.rules.training_log import divergence_of

        return None if self._watch is None else divergence_of(job.failure_reason)

    @cached_property
    def _guard_action(self) -> RuleAction | None:
        """The plan's reaction to a non-finite value; None if the plan has no rule for it."""
        from trainyard.rules.reactions import planned_reactions

        return planned_reactions(WatchPlan.of(self._watch)).of_rule(_GUARD)

    def _chosen(self, job: JobSnapshot) -> RetryRemedy | None:
        """Return the remedy that a human chose for a stopped job.

        Return None if no human was asked, or if none has chosen yet.
        """
        return self._stops.chosen(job) if self._asks else None

    @property
    def _asks(self) -> bool:
        return self.retry is not None and self.retry.action == ASK

    @cached_property
    def _stops(self) -> RuleStops:
        from trainyard_airflow.jobs.rule_stops import RuleStops

        return RuleStops(self._jobs)


def planned_retry(watch: Any) -> RuleRetry | None:
    """Return the settings of `watch` for a retry after a rule stopped a job; None if it has none.

    `watch` is a `WatchPlan`, a mapping of its fields, or None.
    """
    return None if watch is None else read_retry(WatchPlan.of(watch).on_stop)


def _verdict_step(result: Mapping[str, Any], verdict: Mapping[str, Any]) -> Done:
    ended = {**result, "ended_by": ENDED_BY_RULE, "verdict": dict(verdict)}
    return Done(result=ended, is_verdict=True)
