"""`script_pipeline`: a DAG that trains a script of one's own, for DAG files of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, chain

from trainyard.task_ids import TaskId
from trainyard_airflow.operators.check_rules import CheckRulesOperator
from trainyard_airflow.operators.watched_training import WatchedTrainingJobOperator
from trainyard_airflow.tasks.end_to_end.monitoring import (
    SetUpMonitoringOperator,
    TearDownMonitoringOperator,
)
from trainyard_airflow.tasks.end_to_end.report import ReportOperator
from trainyard_airflow.tasks.own_script import task_specs
from trainyard_airflow.tasks.own_script.evaluation_job import ScriptEvaluationOperator
from trainyard_airflow.tasks.own_script.params import script_params
from trainyard_airflow.tasks.own_script.preflight import ScriptPreflightOperator
from trainyard_airflow.tasks.own_script.register import RegisterIfGoodOperator
from trainyard_airflow.tasks.shared.assets import MODEL_ASSET
from trainyard_airflow.tasks.shared.default_args import JOB_RETRIES, dag_arguments_with
from trainyard_airflow.tasks.shared.form_schema import give_params, params_with

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.sdk import BaseOperator, Param


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRecipe:
    """Parts of the pipeline that a family of runs has of its own.

    Attributes:
        params: returns the form's params, with the defaults that it is given by name.
        preflight: the first task; its `resolve` returns the params of a `ScriptConf`.
        check: makes a task between `preflight` and `train` that costs nothing; None = none.
    """

    params: Callable[..., dict[str, Param]] = script_params
    preflight: type[ScriptPreflightOperator] = ScriptPreflightOperator
    check: Callable[[], BaseOperator] | None = None


OWN_SCRIPT = ScriptRecipe()
_LEDGER_URI = "{{ ti.xcom_pull(task_ids='preflight')['ledger_uri'] }}"
_NOTIFIER = "{{ ti.xcom_pull(task_ids='preflight')['notifier'] | tojson }}"


def script_pipeline(
    *,
    dag_id: str,
    aws_conn_id: str = "aws_default",
    prepare: Callable[[], BaseOperator] | None = None,
    evaluate: Callable[[], BaseOperator] | None = None,
    schedule: Any = None,
    dag_arguments: Mapping[str, Any] | None = None,
    recipe: ScriptRecipe = OWN_SCRIPT,
    **defaults: Any,
) -> DAG:
    """Return a DAG that trains, watches, measures and registers the model of an own script.

    Args:
        dag_id: the DAG's. Airflow passes over files without the letters "dag": give it by name.
        aws_conn_id: the connection of all its tasks, such as that of a team or an account.
        prepare: makes a task between `preflight` and `train`, such as a Glue job that writes the data.
        evaluate: makes the task that measures the model in place of the run's own, with the task_id `evaluate`; what it
            returns may have `metrics`, names to numbers, for `register_when`.
        schedule: as Airflow's DAG takes it.
        dag_arguments: further arguments of the DAG, such as tags or max_active_runs.
        recipe: form, first task and check of a family of runs, such as fine-tunings.
        defaults: the form's fields, by the names of the REST conf: entry_point, source_dir, instance_type, ...

    Raises:
        SpecError: names of no field, and values that the form would refuse, all at once: Airflow shows it as the import
            error of the DAG file.
        ValueError: the task that `evaluate` makes has another task_id.
    """
    params = params_with(recipe.params, defaults, subject=f"pipeline {dag_id}")
    arguments = dag_arguments_with(dag_arguments or {}, aws_conn_id=aws_conn_id)
    with DAG(dag_id=dag_id, schedule=schedule, **arguments) as dag:
        preflight = recipe.preflight(
            task_id=TaskId.PREFLIGHT,
            has_own_evaluation=evaluate is not None,
            has_preparation=prepare is not None,
        )
        train = WatchedTrainingJobOperator(
            task_id=TaskId.TRAIN,
            spec=task_specs.train_task_spec,
            ledger_uri=_LEDGER_URI,
            watch=task_specs.watch_task_plan,
            notifier=_NOTIFIER,
            retries=JOB_RETRIES,
        )
        watch_rules = CheckRulesOperator(
            task_id=TaskId.WATCH_RULES,
            watch=task_specs.watch_task_plan,
            watched_task_id=TaskId.TRAIN,
            notifier=_NOTIFIER,
        )
        set_up = SetUpMonitoringOperator(task_id=TaskId.SET_UP_MONITORING)
        tear_down = TearDownMonitoringOperator(task_id=TaskId.TEAR_DOWN_MONITORING)
        tear_down.as_teardown(setups=set_up)
        measure = evaluate() if evaluate else _evaluation()
        if measure.task_id != TaskId.EVALUATE:
            raise ValueError(
                f"the task that measures has the task_id {measure.task_id!r}, not 'evaluate'"
            )
        # A run without an evaluation goes on to here; a training that a rule ended skips it by itself.
        register = RegisterIfGoodOperator(
            task_id=TaskId.REGISTER,
            version=task_specs.register_task_version,
            has_own_evaluation=evaluate is not None,
            asset=MODEL_ASSET,
            trigger_rule="none_failed_min_one_success",
        )
        # A teardown runs whatever happened before it, also when somebody marked the run failed.
        report = ReportOperator(task_id=TaskId.REPORT).as_teardown()
        # The run's state is that of this task: it succeeds only if every task before it did.
        outcome = EmptyOperator(
            task_id=TaskId.OUTCOME, on_execute_callback=None, on_failure_callback=None
        )
        before = [make() for make in (recipe.check, prepare) if make]
        chain(preflight, *before, train, measure, register)
        chain(register, report, outcome)
        register >> outcome
        train >> register
        preflight >> measure
        preflight >> watch_rules >> report
        preflight >> set_up
        train >> tear_down
    give_params(dag, params)
    return dag


def _evaluation() -> BaseOperator:
    return ScriptEvaluationOperator(
        task_id=TaskId.EVALUATE,
        spec=task_specs.evaluate_task_spec,
        ledger_uri=_LEDGER_URI,
        retries=JOB_RETRIES,
    )
