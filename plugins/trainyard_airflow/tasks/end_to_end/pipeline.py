"""`training_pipeline`: factory of an end-to-end DAG, for users' own DAG files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, chain

from trainyard.task_ids import TaskId
from trainyard_airflow.operators.check_rules import CheckRulesOperator
from trainyard_airflow.operators.shard_dataset import ShardDatasetOperator
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.operators.tune_hyperparameters import TuneHyperparametersOperator
from trainyard_airflow.operators.watched_training import WatchedTrainingJobOperator
from trainyard_airflow.tasks.end_to_end import task_specs
from trainyard_airflow.tasks.end_to_end.evaluation_job import EvaluationJobOperator
from trainyard_airflow.tasks.end_to_end.monitoring import (
    SetUpMonitoringOperator,
    TearDownMonitoringOperator,
)
from trainyard_airflow.tasks.end_to_end.params import run_params
from trainyard_airflow.tasks.end_to_end.preflight import PreflightOperator
from trainyard_airflow.tasks.end_to_end.registration import RegisterIfGoodOperator
from trainyard_airflow.tasks.end_to_end.report import ReportOperator
from trainyard_airflow.tasks.shared.assets import MODEL_ASSET, SHARDS_ASSET
from trainyard_airflow.tasks.shared.default_args import JOB_RETRIES, dag_arguments_with
from trainyard_airflow.tasks.shared.form_schema import give_params, params_with

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEDGER_URI = "{{ ti.xcom_pull(task_ids='preflight')['ledger_uri'] }}"
_NOTIFIER = "{{ ti.xcom_pull(task_ids='preflight')['notifier'] | tojson }}"


def training_pipeline(
    *,
    dag_id: str,
    aws_conn_id: str = "aws_default",
    defaults: Mapping[str, Any] | None = None,
    schedule: Any = None,
    **dag_arguments: Any,
) -> DAG:
    """Return a DAG of the whole run, from `preflight` to `report`.

    Args:
        dag_id: the DAG's id. Pass it by keyword: Airflow ignores files that do not contain the text `dag`.
        aws_conn_id: the connection of all tasks, such as a team's connection.
        defaults: defaults of the form's fields, by the names of the REST conf; they override Trainyard's defaults.
        schedule: the schedule, in one of the forms of Airflow's `DAG`.
        dag_arguments: further arguments of the DAG, such as tags or max_active_runs.

    Raises:
        SpecError: `defaults` has unknown names, or values that the form would reject; it lists all of them. Airflow
            reports it as the import error of the DAG file.
    """
    params = params_with(run_params, defaults or {}, subject=f"training_pipeline {dag_id}")
    arguments = dag_arguments_with(dag_arguments, aws_conn_id=aws_conn_id)
    with DAG(dag_id=dag_id, schedule=schedule, **arguments) as dag:
        preflight = PreflightOperator(task_id=TaskId.PREFLIGHT)
        shard = ShardDatasetOperator(
            task_id=TaskId.SHARD,
            spec=task_specs.shard_task_spec,
            asset=SHARDS_ASSET,
            ledger_uri=_LEDGER_URI,
        )
        # Without `smoke_hyperparameters`, preflight skips this task.
        smoke_test = TrainingJobOperator(
            task_id=TaskId.SMOKE_TEST,
            spec=task_specs.smoke_task_spec,
            ledger_uri=_LEDGER_URI,
            retries=JOB_RETRIES,
        )
        # Without `tune`, preflight skips this task, and the training follows the shards.
        tune = TuneHyperparametersOperator(
            task_id=TaskId.TUNE,
            spec=task_specs.tune_task_spec,
            trials_uri="{{ ti.xcom_pull(task_ids='preflight')['trials_uri'] }}",
            ledger_uri=_LEDGER_URI,
            retries=JOB_RETRIES,
            trigger_rule="none_failed_min_one_success",
        )
        train = WatchedTrainingJobOperator(
            task_id=TaskId.TRAIN,
            spec=task_specs.train_task_spec,
            ledger_uri=_LEDGER_URI,
            watch=task_specs.watch_task_plan,
            notifier=_NOTIFIER,
            retries=JOB_RETRIES,
            trigger_rule="none_failed_min_one_success",
        )
        # Parallel to the training: rules evaluate the statistics of its ranks, and may stop it.
        watch_rules = CheckRulesOperator(
            task_id=TaskId.WATCH_RULES,
            watch=task_specs.watch_task_plan,
            watched_task_id=TaskId.TRAIN,
            notifier=_NOTIFIER,
            trigger_rule="none_failed_min_one_success",
        )
        # Without `monitoring`, preflight skips the setup, and Airflow then skips the teardown. Both are parallel to the
        # training, because a task after a setup cannot have its own trigger rule.
        set_up = SetUpMonitoringOperator(task_id=TaskId.SET_UP_MONITORING)
        tear_down = TearDownMonitoringOperator(task_id=TaskId.TEAR_DOWN_MONITORING)
        tear_down.as_teardown(setups=set_up)
        evaluate = EvaluationJobOperator(
            task_id=TaskId.EVALUATE,
            spec=task_specs.evaluate_task_spec,
            ledger_uri=_LEDGER_URI,
            retries=JOB_RETRIES,
        )
        register = RegisterIfGoodOperator(
            task_id=TaskId.REGISTER, version=task_specs.register_task_version, asset=MODEL_ASSET
        )
        # A teardown runs in every case, even if the run was marked failed.
        report = ReportOperator(task_id=TaskId.REPORT).as_teardown()
        # This task determines the run's state: it succeeds only if every task before it did. The scheduler completes an
        # empty task without callbacks itself, without a worker.
        outcome = EmptyOperator(
            task_id=TaskId.OUTCOME, on_execute_callback=None, on_failure_callback=None
        )
        chain(preflight, shard, smoke_test, tune, train, evaluate, register, report, outcome)
        preflight >> [smoke_test, tune]
        shard >> [tune, train]
        smoke_test >> train
        [preflight, shard, smoke_test, tune] >> watch_rules >> report
        preflight >> set_up
        train >> tear_down
        register >> outcome
    give_params(dag, params)
    return dag
