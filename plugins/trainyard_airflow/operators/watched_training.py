"""`WatchedTrainingJobOperator`: a training whose end by a rule is a result with a verdict, not an error."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import SkipMixin

from trainyard.errors import RuleViolatedError
from trainyard.rules.rule import RuleAction
from trainyard.rules.rule_retry import ASK, RetryRemedy, RuleRetry
from trainyard.rules.watch_plan import WatchPlan
from trainyard.sagemaker_api.rule_stop import RuleStop, remedy_of, remedy_tag
from trainyard_airflow.operators.attempts import NextAction
from trainyard_airflow.operators.task_memory import TaskMemory
from trainyard_airflow.operators.training_job import TrainingJobOperator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.operators.attempts import Standing
    from trainyard_airflow.operators.rule_retry import EarlierStop
    from trainyard_airflow.operators.rule_stops import RuleStops

ENDED_BY_RULE = "rule"
_GUARD = "NonFinite"


class WatchedTrainingJobOperator(TrainingJobOperator, SkipMixin):
    """Trains as `TrainingJobOperator` does, and understands what a `CheckRulesOperator` did to the job.

    A job that a rule stopped, ours or the service's Debugger's, is the task's result: `ended_by` is `rule`, and
    `verdict` has the rule, the step, the evidence and the last checkpoint. So is a job that its script's own guard
    against NaN ended, where the plan would stop it for that. The tasks after it are skipped; those that run whatever
    happened, run. Where the rule's action is `fail`, the task fails by `RuleViolatedError`.

    With the plan's `on_stop` the training goes on by itself, or a human is asked how: then the task waits in
    `awaiting_input`, without a worker, and `execute_answered` does what was chosen. No job begins before the stopped
    one has the answer as a tag: a retry and a clear before that ask again.

    To go on with the training all the same, clear the task and the one that watches it: its next attempt begins at the
    last checkpoint.

    Args:
        watch: the `WatchPlan` of the rules beside the job, or the mapping of its fields, or a function that returns
            either; None for no rules beside it.
    """

    template_fields = (*TrainingJobOperator.template_fields, "watch")

    def __init__(self, *, watch: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.watch = watch
        self._told: set[str] = set()
        self._last_told = 0
        self._skips = False

    def render(
        self, context: Context, *, name: str, place: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the request and facts; after a rule's stop those of the retry that the plan asks for.

        Raises:
            SpecError: the plan asks for a retry, and the request has no learning rate that it could lower.
        """
        from trainyard_airflow.operators.rule_retry import change_request, learning_rate_of

        request, facts = super().render(context, name=name, place=place)
        retry = self._retry
        if retry is None:
            return request, facts
        if retry.lowers:
            learning_rate_of(request)
        stops = self._stops_before(context, name)
        if not stops:
            return request, facts
        changed = change_request(self.clients.client("s3"), request, retry, stops=stops)
        return request, {**facts, **changed}

    def hands_on(self, snapshot: JobSnapshot) -> bool:
        """Return whether a rule stopped the job, and nobody was told so yet: then that is the task's result.

        Not where a human has said how the training goes on.
        """
        if snapshot.name in self._told or self._stops.of(snapshot) is None:
            return False
        return self._chosen(snapshot) in {None, RetryRemedy.END}

    def completed(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:
        """Return the job's result; with its verdict where a rule stopped it.

        Raises:
            RuleViolatedError: a rule stopped it whose action is to fail.
        """
        from trainyard.sagemaker_api.snapshot import JobSnapshot

        snapshot = JobSnapshot.from_dict(result)
        found = None if snapshot.succeeded else self._stops.of(snapshot)
        if found is None:
            return super().completed(context, result)
        stop, evidence = found
        return self._ended_by_rule(
            context, result, snapshot, stop, evidence or self._stops.evidence(snapshot)
        )

    def post_execute(self, context: Context, result: Any = None) -> None:
        """Skip what follows a training that a rule ended."""
        if not self._skips:
            return
        follow = [
            each
            for each in self.downstream_list
            if not each.is_teardown and each.trigger_rule != "all_done"
        ]
        # Skipping ends the task here and now, before Airflow keeps what it returned.
        context["ti"].xcom_push(key="return_value", value=result or self._result)
        self.skip(context["ti"], follow)

    def _standing(self, context: Context) -> Standing:
        """Return where the task stands; attempts whose verdict was told are over, so that a clear goes on.

        A job that its script's guard ended is not over while a human's answer is due, whatever the store tells.
        """
        told = self._reported(context) or 0
        self._told = {self.name_of(context, attempt) for attempt in range(1, told + 1)}
        standing = super()._standing(context)
        if standing.step is not NextAction.SUBMIT or not standing.earlier:
            return standing
        *earlier, last = standing.earlier
        if last.name in self._told or not self._awaits_answer(last):
            return standing
        return replace(
            standing,
            step=NextAction.REPORT,
            attempt=standing.attempt - 1,
            snapshot=last,
            earlier=tuple(earlier),
        )

    def _reported(self, context: Context) -> int | None:
        """Return the last attempt that was told, also where the store did not take it."""
        known = super()._reported(context)
        return max(self._last_told, known or 0) if self._last_told else known

    def _note_told(self, context: Context, attempt: int) -> None:
        TaskMemory(context).note_reported(attempt)
        self._last_told = attempt

    def _awaits_answer(self, job: JobSnapshot) -> bool:
        """Return whether a question follows the job's end, or its answer "End" does."""
        return (
            self._asks
            and self._guarded(job) is not None
            and self._guard_action is RuleAction.STOP
            and self._chosen(job) in {None, RetryRemedy.END}
        )

    def _guarded(self, job: JobSnapshot) -> tuple[int, str] | None:
        """Return step and evidence of a job that its script ended for a NaN; None for every other."""
        from trainyard.rules.training_log import divergence_of

        return None if self.watch is None else divergence_of(job.failure_reason)

    @property
    def _guard_action(self) -> RuleAction | None:
        """The reaction to a NaN; None if the plan has no rule against it."""
        from trainyard.rules.reactions import planned_reactions

        return planned_reactions(self._plan).of_rule(_GUARD)

    def _chosen(self, job: JobSnapshot) -> RetryRemedy | None:
        """Return what a human said of a stopped job; None where nobody did, or was asked."""
        chosen = remedy_of(self.jobs.tags(job.arn)) if self._asks else None
        return None if chosen is None else RetryRemedy(chosen)

    def _failed(
        self,
        context: Context,
        snapshot: JobSnapshot,
        result: dict[str, Any],
        earlier: Sequence[JobSnapshot],
    ) -> dict[str, Any]:
        """Take a job that died of a NaN for stopped by the rule that says the same."""
        diverged = self._guarded(snapshot)
        action = None if diverged is None else self._guard_action
        if diverged is None or action in {None, RuleAction.WARN}:
            return super()._failed(context, snapshot, result, earlier)
        step, evidence = diverged
        stop = RuleStop(rule=_GUARD, step=step, fails=action is RuleAction.FAIL)
        return self._ended_by_rule(context, result, snapshot, stop, f"{evidence}, said the script")

    def _ended_by_rule(
        self,
        context: Context,
        result: dict[str, Any],
        snapshot: JobSnapshot,
        stop: RuleStop,
        evidence: str,
    ) -> dict[str, Any]:
        verdict = self._stops.verdict(snapshot, stop, evidence)
        checkpoint = verdict["last_checkpoint"]
        self.log.warning(
            "Job %s was ended by rule %s at step %s: %s. Last checkpoint: %s",
            snapshot.name,
            stop.rule,
            stop.step,
            evidence,
            checkpoint or "none",
        )
        retry = None if stop.fails else self._retry_after(context, snapshot, stop)
        if retry and retry.action == ASK:
            chosen = self._chosen(snapshot)
            if chosen is None:
                self._ask(context, verdict, retry, result=result)
            return self._go_on(context, chosen, result, verdict)
        self._note_told(context, int(result["attempt"]))
        if retry:
            self.log.warning("The training goes on: %s", retry)
            return self._run(context)
        TaskMemory(context).note_verdict(int(result["attempt"]))
        if stop.fails:
            raise RuleViolatedError(
                f"rule {stop.rule} ended the training at step {stop.step}",
                where=f"job {snapshot.name}",
                got=evidence,
                next_step=f"mend what it names; the last checkpoint is {checkpoint or 'none'}",
            )
        return self._told_verdict(result, verdict)

    def _retry_after(
        self, context: Context, snapshot: JobSnapshot, stop: RuleStop
    ) -> RuleRetry | None:
        """Return the retry that follows a stop; None where the stop is the verdict."""
        retry = self._retry
        if retry is None or len(self._stops_before(context, snapshot.name)) >= retry.most:
            return None
        if retry.action == RetryRemedy.SKIP and not stop.step:
            self.log.warning("Rule %s told no step: there is no batch to leave out", stop.rule)
            return None
        return retry

    def _told_verdict(self, result: dict[str, Any], verdict: dict[str, Any]) -> dict[str, Any]:
        self._skips = True
        self._result = {**result, "ended_by": ENDED_BY_RULE, "verdict": verdict}
        return self._result

    def _ask(
        self,
        context: Context,
        verdict: dict[str, Any],
        retry: RuleRetry,
        *,
        result: dict[str, Any],
    ) -> NoReturn:
        from trainyard_airflow.operators.rule_question import ask_human

        then = self.execute_answered.__name__
        self.log.warning("A human is asked how the training goes on (Required Actions): %s", retry)
        kwargs = {"result": result, "verdict": verdict}
        ask_human(context, verdict, retry, then=then, kwargs=kwargs)

    def execute_answered(
        self,
        context: Context,
        event: Mapping[str, Any],
        result: dict[str, Any],
        verdict: dict[str, Any],
    ) -> dict[str, Any]:
        """Go on as a human chose, or the plan where nobody did; the stopped job keeps the choice as a tag.

        Raises:
            TrainingRunError: as `execute`; or the service refused the tag: then nothing has gone on.
        """
        from trainyard_airflow.operators.rule_question import answer_of

        chosen, by = answer_of(event, self._retry or RuleRetry(action=ASK), verdict)
        self.log.warning("After rule %s: %s, said %s", verdict["rule"], chosen, by)
        self.jobs.add_tag(result["arn"], remedy_tag(chosen))
        return self._go_on(context, chosen, result, {**verdict, "decided_by": by})

    def _go_on(
        self, context: Context, chosen: RetryRemedy, result: dict[str, Any], verdict: dict[str, Any]
    ) -> dict[str, Any]:
        """Do what a human chose, which the stopped job has as a tag."""
        self._note_told(context, int(result["attempt"]))
        if chosen is not RetryRemedy.END:
            return self._run(context)
        TaskMemory(context).note_verdict(int(result["attempt"]))
        return self._told_verdict(result, verdict)

    @property
    def _retry(self) -> RuleRetry | None:
        from trainyard.rules.rule_retry import read_retry

        return None if self.watch is None else read_retry(self._plan.on_stop)

    @property
    def _asks(self) -> bool:
        return self._retry is not None and self._retry.action == ASK

    def _stops_before(self, context: Context, name: str) -> list[EarlierStop]:
        """Return the stop of each earlier job that a rule ended."""
        stops: list[EarlierStop] = []
        last_verdict, attempt = TaskMemory(context).verdict_attempt, 0
        while self.name_of(context, attempt + 1) != name:
            attempt += 1
            job = self.name_of(context, attempt)
            stop = self._stops.earlier(job, is_verdict=attempt <= last_verdict, asks=self._asks)
            if stop is not None:
                stops.append(stop)
        return stops

    @property
    def _plan(self) -> WatchPlan:
        return WatchPlan.of(self.watch)

    @cached_property
    def _stops(self) -> RuleStops:
        from trainyard_airflow.operators.rule_stops import RuleStops

        return RuleStops(self.jobs, self.clients)
