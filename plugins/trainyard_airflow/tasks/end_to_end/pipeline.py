"""`training_pipeline`: factory of an end-to-end DAG, for users' own DAG files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from trainyard.task_ids import TaskId
from trainyard_airflow.operators.shard_dataset import ShardDatasetOperator
from trainyard_airflow.operators.tune_hyperparameters import TuneHyperparametersOperator
from trainyard_airflow.tasks.end_to_end import task_specs
from trainyard_airflow.tasks.end_to_end.evaluation_job import EvaluationJobOperator
from trainyard_airflow.tasks.end_to_end.params import FORM
from trainyard_airflow.tasks.end_to_end.preflight import PreflightOperator
from trainyard_airflow.tasks.end_to_end.run_tasks import (
    AFTER_SKIPPED,
    JOB_ARGUMENTS,
    LEDGER_URI,
    add_run_tasks,
)
from trainyard_airflow.tasks.end_to_end.stages import Stage, Stages
from trainyard_airflow.tasks.shared.assets import SHARDS_ASSET
from trainyard_airflow.tasks.shared.default_args import dag_arguments_with

if TYPE_CHECKING:
    from collections.abc import Mapping


def training_pipeline(
    *,
    dag_id: str,
    aws_conn_id: str = "aws_default",
    defaults: Mapping[str, Any] | None = None,
    prepare: Stage = None,
    shard: Stage = True,
    evaluate: Stage = True,
    register: Stage = True,
    schedule: Any = None,
    **dag_arguments: Any,
) -> DAG:
    """Return a DAG of the whole run, from `preflight` to `report`.

    Args:
        dag_id: the DAG's id. Pass it by keyword: Airflow ignores files that do not contain the text `dag`.
        aws_conn_id: the connection of all tasks, such as a team's connection.
        defaults: default values by the name of the form's field, as in the REST conf; they override Trainyard's
            defaults.
        prepare: creates a task before `shard`, such as a Glue job that writes the source; see `Stages`.
        shard: replaces the run's own sharding, such as by a data set that exists; see `Stages`.
        evaluate: replaces the run's own evaluation, or leaves it out; see `Stages`.
        register: replaces the run's own registration, or leaves it out; see `Stages`.
        schedule: the schedule, in one of the forms of Airflow's `DAG`.
        dag_arguments: further arguments of the DAG, such as tags or max_active_runs.

    Raises:
        SpecError: `defaults` has unknown names, or values that the form would reject; the error lists all of
            them. It is also raised if a stage is invalid, or if a default has no effect because its stage is
            replaced or left out. Airflow reports it as the import error of the DAG file.
    """
    form = FORM.with_defaults(defaults or {}, subject=f"training_pipeline {dag_id}")
    arguments = dag_arguments_with(dag_arguments, aws_conn_id=aws_conn_id)
    stages = Stages(
        prepare=prepare,
        shard=shard,
        evaluate=evaluate,
        register=register,
        own_shard=lambda: ShardDatasetOperator(
            task_id=TaskId.SHARD,
            spec=task_specs.shard_task_spec,
            asset=SHARDS_ASSET,
            ledger_uri=LEDGER_URI,
        ),
        own_evaluation=lambda: EvaluationJobOperator(
            task_id=TaskId.EVALUATE, spec=task_specs.evaluate_task_spec, **JOB_ARGUMENTS
        ),
    )
    stages.check(defaults or {}, subject=f"training_pipeline {dag_id}")
    with DAG(dag_id=dag_id, schedule=schedule, **arguments) as dag:
        preflight = PreflightOperator(task_id=TaskId.PREFLIGHT, stages=stages)
        add_run_tasks(preflight, stages.prepared(), specs=task_specs, stages=stages, search=_search)
    form.add_to(dag)
    return dag


def _search() -> TuneHyperparametersOperator:
    """Create the task of the search; preflight skips this task if the run's `tune` is false."""
    return TuneHyperparametersOperator(
        task_id=TaskId.TUNE,
        spec=task_specs.tune_task_spec,
        trials_uri="{{ ti.xcom_pull(task_ids='preflight')['trials_uri'] }}",
        trigger_rule=AFTER_SKIPPED,
        **JOB_ARGUMENTS,
    )
