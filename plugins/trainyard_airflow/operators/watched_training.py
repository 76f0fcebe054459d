"""`WatchedTrainingJobOperator`: a training job whose stop by a rule is a result with a verdict, not an error."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import SkipMixin

from trainyard.planning.pool_slots import PoolDemand
from trainyard_airflow.jobs.steps import AskHuman
from trainyard_airflow.operators.sagemaker_job import SageMakerJobOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from trainyard_airflow.jobs.job_run import JobRun
    from trainyard_airflow.jobs.rule_stop_policy import RuleStopPolicy
    from trainyard_airflow.jobs.steps import Done, Step
    from trainyard_airflow.jobs.task_jobs import TaskJobs
    from trainyard_airflow.jobs.task_memory import TaskMemory


class WatchedTrainingJobOperator(SageMakerJobOperator, SkipMixin):
    """Trains as `TrainingJobOperator` does, and handles a stop by a rule of `CheckRulesOperator` or of Debugger.

    A job that a rule stopped is the task's result: `ended_by` is `rule`, and `verdict` has the rule, the step, the
    evidence and the last checkpoint. Direct downstream tasks are skipped, except teardowns and tasks with the
    trigger rule `all_done`. If the rule's action is `fail`, the task fails with `RuleViolatedError`. All this also
    applies to a job that its script ended at a non-finite value, if the `WatchPlan` has a rule that stops jobs
    at non-finite values.

    If the plan has `on_stop`, the training is retried automatically, or a person is asked. Until a person answers,
    the task waits in `awaiting_input` without a worker; then `execute_answered` applies the answer. The answer is
    stored as a tag of the stopped job before a new job starts. If the task is retried or cleared before the answer
    is stored, the person is asked again.

    To continue the training after a verdict, clear this task and the watching task. The next attempt resumes from
    the last checkpoint.

    Args:
        watch: the `WatchPlan` of the watching task, a mapping of its fields, or a function that returns either;
            None if no rules watch the job.
    """

    template_fields = (*SageMakerJobOperator.template_fields, "watch")
    custom_operator_name: ClassVar[str] = PoolDemand.TRAINING.value
    ui_color = "#e6f0fa"

    def __init__(self, *, watch: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.watch = watch
        self._verdict: dict[str, Any] | None = None

    def end_policy(self, jobs: TaskJobs, memory: TaskMemory) -> RuleStopPolicy:
        """Return the policy for a stop by a rule."""
        from trainyard_airflow.jobs.rule_stop_policy import RuleStopPolicy

        return RuleStopPolicy(jobs, memory, watch=self.watch)

    def take(self, context: Context, run: JobRun, step: Step) -> Step:
        """Wait as the step requires, for a job or for a person's answer, and return the next step.

        Raises:
            TaskAwaitingInput: a person is asked; `execute_answered` resumes. See `ask_person` for Airflow 3.2.
            TaskDeferred: the task waits for the job in the triggerer.
        """
        if isinstance(step, AskHuman):
            from trainyard.cost.job_cost import attempts_usd
            from trainyard_airflow.hooks.notifications import notify
            from trainyard_airflow.operators.rule_question import ask_human

            ask_human(
                context,
                step.verdict,
                step.retry,
                then=self.execute_answered.__name__,
                kwargs={"result": dict(step.result), "verdict": dict(step.verdict)},
                send=partial(notify, self.clients, self._notifier),
                cost_usd=attempts_usd(step.result),
            )
        return super().take(context, run, step)

    def execute_answered(
        self,
        context: Context,
        event: Mapping[str, Any],
        result: dict[str, Any],
        verdict: dict[str, Any],
    ) -> dict[str, Any]:
        """Apply a person's answer, or the default of the plan's `on_stop` if nobody answered.

        The chosen remedy is stored as a tag of the stopped job.

        Args:
            context: the task's context.
            event: Airflow's event that resumes the task.
            result: the stopped job's result.
            verdict: the stopped job's verdict, about which the person was asked.

        Raises:
            TrainingRunError: as in `execute`; also if the service rejected the tag. After a rejected tag, no job is
                started.
        """
        from trainyard.rules.rule_retry import ASK, RuleRetry
        from trainyard_airflow.jobs.rule_stop_policy import planned_retry
        from trainyard_airflow.operators.person_question import end_wait
        from trainyard_airflow.operators.rule_question import answer_of

        end_wait(context)
        retry = planned_retry(self.watch) or RuleRetry(action=ASK)
        chosen, by = answer_of(event, retry, verdict)
        return self.go(context, lambda run: run.answered(chosen, by, result, verdict))

    def returned(self, context: Context, done: Done) -> dict[str, Any]:  # noqa: ARG002
        """Return the job's result, with `verdict` if a rule ended the job."""
        self._verdict = done.result if done.is_verdict else None
        return done.result

    def post_execute(self, context: Context, result: Any = None) -> None:
        """If a rule ended the training, skip the direct downstream tasks, except teardowns and `all_done` tasks."""
        if self._verdict is None:
            return
        follow = [
            each
            for each in self.downstream_list
            if not each.is_teardown and each.trigger_rule != "all_done"
        ]
        # `skip` ends the task at once, before Airflow stores its return value.
        context["ti"].xcom_push(key="return_value", value=result or self._verdict)
        self.skip(context["ti"], follow)
