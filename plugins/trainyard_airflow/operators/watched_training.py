"""`WatchedTrainingJobOperator`: a training whose end by a rule is a result with a verdict, not an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import SkipMixin

from trainyard.planning.pool_slots import PoolDemand
from trainyard_airflow.hooks.job_kinds import JobKind
from trainyard_airflow.jobs.steps import AskHuman
from trainyard_airflow.operators.sagemaker_job import SageMakerJobOperator
from trainyard_airflow.operators.training_job import training_job_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from trainyard_airflow.jobs.job_run import JobRun
    from trainyard_airflow.jobs.rule_stop_policy import RuleStopPolicy
    from trainyard_airflow.jobs.steps import Done, Step
    from trainyard_airflow.jobs.task_jobs import TaskJobs
    from trainyard_airflow.jobs.task_memory import TaskMemory
    from trainyard_airflow.jobs.training import TrainingJobType


class WatchedTrainingJobOperator(SageMakerJobOperator, SkipMixin):
    """Trains as `TrainingJobOperator` does, and understands what a `CheckRulesOperator` did to the job.

    A job that a rule stopped, ours or the service's Debugger's, is the task's result: `ended_by` is `rule`, and
    `verdict` has the rule, the step, the evidence and the last checkpoint. So is a job that its script's own guard
    against NaN ended, if the plan would stop it for that. The tasks after it are skipped; those that run whatever
    happened, run. If the rule's action is `fail`, the task fails by `RuleViolatedError`.

    With the plan's `on_stop` the training goes on by itself, or a human is asked how: then the task waits in
    `awaiting_input`, without a worker, and `execute_answered` does what was chosen. No job begins before the stopped
    one has the answer as a tag: a retry and a clear before that ask again.

    To go on with the training all the same, clear the task and the one that watches it: its next attempt begins at the
    last checkpoint.

    Args:
        watch: the `WatchPlan` of the rules beside the job, or the mapping of its fields, or a function that returns
            either; None for no rules beside it.
    """

    template_fields = (*SageMakerJobOperator.template_fields, "watch")
    job_kind: ClassVar[JobKind] = JobKind.TRAINING
    custom_operator_name: ClassVar[str] = PoolDemand.TRAINING.value
    ui_color = "#e6f0fa"

    def __init__(self, *, watch: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.watch = watch
        self._verdict: dict[str, Any] | None = None

    def job_type(self, jobs: TaskJobs, context: Context) -> TrainingJobType:
        """Return the job type of training jobs."""
        return training_job_type(self, jobs, context)

    def end_policy(self, jobs: TaskJobs, memory: TaskMemory) -> RuleStopPolicy:
        """Return what is made of a rule's stop."""
        from trainyard_airflow.jobs.rule_stop_policy import RuleStopPolicy

        return RuleStopPolicy(jobs, memory, watch=self.watch)

    def take(self, context: Context, run: JobRun, step: Step) -> Step:
        """Wait as a step says, also for a person's answer.

        Raises:
            TaskAwaitingInput: for that; `execute_answered` goes on.
            TaskDeferred: for the job.
        """
        if isinstance(step, AskHuman):
            from trainyard_airflow.operators.rule_question import ask_human

            kwargs = {"result": dict(step.result), "verdict": dict(step.verdict)}
            then = self.execute_answered.__name__
            ask_human(context, step.verdict, step.retry, then=then, kwargs=kwargs)
        return super().take(context, run, step)

    def execute_answered(
        self,
        context: Context,
        event: Mapping[str, Any],
        result: dict[str, Any],
        verdict: dict[str, Any],
    ) -> dict[str, Any]:
        """Go on as a human chose, or the plan if nobody did; the stopped job keeps the choice as a tag.

        Raises:
            TrainingRunError: as `execute`; or the service refused the tag: then nothing has gone on.
        """
        from trainyard.rules.rule_retry import ASK, RuleRetry
        from trainyard_airflow.jobs.rule_stop_policy import planned_retry
        from trainyard_airflow.operators.rule_question import answer_of

        retry = planned_retry(self.watch) or RuleRetry(action=ASK)
        chosen, by = answer_of(event, retry, verdict)
        return self.go(context, lambda run: run.answered(chosen, by, result, verdict))

    def returned(self, context: Context, done: Done) -> dict[str, Any]:  # noqa: ARG002
        """Return the job's result; with its verdict if a rule ended it."""
        self._verdict = done.result if done.is_verdict else None
        return done.result

    def post_execute(self, context: Context, result: Any = None) -> None:
        """Skip what follows a training that a rule ended."""
        if self._verdict is None:
            return
        follow = [
            each
            for each in self.downstream_list
            if not each.is_teardown and each.trigger_rule != "all_done"
        ]
        # Skipping ends the task here and now, before Airflow keeps what it returned.
        context["ti"].xcom_push(key="return_value", value=result or self._verdict)
        self.skip(context["ti"], follow)
