"""`add_run_tasks`: tasks of a run with one training, from the smoke test to the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import chain

from trainyard.task_ids import TaskId
from trainyard_airflow.operators.check_rules import CheckRulesOperator
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.operators.watched_training import WatchedTrainingJobOperator
from trainyard_airflow.tasks.end_to_end.monitoring import (
    SetUpMonitoringOperator,
    TearDownMonitoringOperator,
)
from trainyard_airflow.tasks.end_to_end.registration import RegisterIfGoodOperator
from trainyard_airflow.tasks.end_to_end.report import ReportOperator
from trainyard_airflow.tasks.end_to_end.stages import StageUse
from trainyard_airflow.tasks.shared.assets import MODEL_ASSET
from trainyard_airflow.tasks.shared.default_args import JOB_RETRIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import BaseOperator

    from trainyard_airflow.tasks.end_to_end.stages import Stages

LEDGER_URI = "{{ ti.xcom_pull(task_ids='preflight')['ledger_uri'] }}"
NOTIFIER = "{{ ti.xcom_pull(task_ids='preflight')['notifier'] | tojson }}"

AFTER_SKIPPED = "none_failed_min_one_success"
"""Trigger rule of a task whose upstream tasks preflight may skip."""
JOB_ARGUMENTS: Mapping[str, Any] = {"ledger_uri": LEDGER_URI, "retries": JOB_RETRIES}


class RunSpecs(Protocol):
    """Functions that return the specs of a run's tasks; each module `task_specs` implements this protocol."""

    @property
    def smoke_task_spec(self) -> Callable[..., Any]:
        """Return the function that makes the job spec of the smoke test."""

    @property
    def train_task_spec(self) -> Callable[..., Any]:
        """Return the function that makes the job spec of the training."""

    @property
    def watch_task_plan(self) -> Callable[..., Any]:
        """Return the function that makes the plan for the evaluation of rules during the training.

        That function returns None if the training is not watched.
        """

    @property
    def register_task_version(self) -> Callable[..., Any]:
        """Return the function that makes the model version to register."""


def add_run_tasks(
    preflight: BaseOperator,
    before: Sequence[BaseOperator],
    *,
    specs: RunSpecs,
    stages: Stages,
    search: Callable[[], BaseOperator] | None = None,
) -> None:
    """Add the tasks of a run after `preflight` to the current DAG: smoke test, search, training, ..., report.

    Args:
        preflight: the run's first task.
        before: tasks between preflight and the first job of the training, in their order.
        specs: specs of the run's tasks.
        stages: the stages of the run.
        search: creates the task of the search; None = the run has no search.

    Raises:
        SpecError: the function of a stage returned no task, or a task whose task_id is not the stage's name.
    """
    # Without `smoke_hyperparameters`, preflight skips this task.
    smoke_test = TrainingJobOperator(
        task_id=TaskId.SMOKE_TEST, spec=specs.smoke_task_spec, **JOB_ARGUMENTS
    )
    searches = [search()] if search else []
    train = WatchedTrainingJobOperator(
        task_id=TaskId.TRAIN,
        spec=specs.train_task_spec,
        watch=specs.watch_task_plan,
        notifier=NOTIFIER,
        trigger_rule=AFTER_SKIPPED,
        **JOB_ARGUMENTS,
    )
    # Parallel to the training: rules evaluate the statistics of its ranks, and may stop it.
    watch_rules = CheckRulesOperator(
        task_id=TaskId.WATCH_RULES,
        watch=specs.watch_task_plan,
        watched_task_id=TaskId.TRAIN,
        ledger_uri=LEDGER_URI,
        notifier=NOTIFIER,
        trigger_rule=AFTER_SKIPPED,
    )
    # Without `monitoring`, preflight skips the setup, and Airflow then skips the teardown. Both are parallel to the
    # training, because a task after a setup cannot have its own trigger rule.
    set_up = SetUpMonitoringOperator(task_id=TaskId.SET_UP_MONITORING)
    tear_down = TearDownMonitoringOperator(task_id=TaskId.TEAR_DOWN_MONITORING)
    tear_down.as_teardown(setups=set_up)
    evaluate = stages.measured()
    register = stages.registered(lambda: _registration(specs, stages))
    # A teardown runs in every case, even if the run was marked failed. `on_failure_fail_dagrun` also keeps a failed
    # `watch_rules` from failing the run: Airflow does not count a task before such a teardown as a last task.
    report = ReportOperator(task_id=TaskId.REPORT).as_teardown(on_failure_fail_dagrun=True)
    # This task determines the run's state: it succeeds only if every task before it did, except `watch_rules`. The
    # scheduler completes an empty task without callbacks itself, without a worker.
    outcome = EmptyOperator(
        task_id=TaskId.OUTCOME, on_execute_callback=None, on_failure_callback=None
    )
    path = [*before, smoke_test, *searches, train, *evaluate, *register]
    chain(preflight, *path, report, outcome)
    preflight >> [smoke_test, *searches]
    last = before[-1] if before else preflight
    last >> [*searches, train]
    smoke_test >> train
    [*dict.fromkeys([preflight, last]), smoke_test, *searches] >> watch_rules >> report
    preflight >> set_up
    train >> tear_down
    path[-1] >> outcome
    if stages.is_evaluation_optional:
        preflight >> evaluate
        train >> register


def _registration(specs: RunSpecs, stages: Stages) -> RegisterIfGoodOperator:
    # With an optional evaluation, the model is registered also without it. If a rule ended the training, the training
    # task skips the registration.
    rule = {"trigger_rule": AFTER_SKIPPED} if stages.is_evaluation_optional else {}
    return RegisterIfGoodOperator(
        task_id=TaskId.REGISTER,
        version=specs.register_task_version,
        has_own_evaluation=stages.use("evaluate") is StageUse.REPLACED,
        asset=MODEL_ASSET,
        **rule,
    )
