"""DAG that searches hyperparameters in several rounds before the training; each trial is a mapped task.

Optuna chooses the trials of each round. In `train_end_to_end`, by contrast, the search is a tuning job of SageMaker.

Use this DAG for trials that need features which tuning jobs lack, such as a container entrypoint or job names of more
than 32 characters. This DAG also prunes: each trial is first trained with few steps. Only the best third of the
trials are then trained with more steps.
"""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, chain

from trainyard.task_ids import TaskId
from trainyard_airflow.operators.shard_dataset import ShardDatasetOperator
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.operators.trial_job import TrialJobOperator
from trainyard_airflow.retry_policy import RETRIES
from trainyard_airflow.tasks.end_to_end import task_specs
from trainyard_airflow.tasks.end_to_end.evaluation_job import EvaluationJobOperator
from trainyard_airflow.tasks.end_to_end.params import FORM
from trainyard_airflow.tasks.end_to_end.preflight import PreflightOperator
from trainyard_airflow.tasks.end_to_end.registration import RegisterIfGoodOperator
from trainyard_airflow.tasks.end_to_end.report import ReportOperator
from trainyard_airflow.tasks.end_to_end.run_tasks import JOB_ARGUMENTS, LEDGER_URI, NOTIFIER
from trainyard_airflow.tasks.end_to_end.tuning_rounds import (
    TRIAL_TASKS,
    AskTrialsOperator,
    ChooseTrialOperator,
    rounds_findings,
    trial_task_spec,
)
from trainyard_airflow.tasks.shared import documentation
from trainyard_airflow.tasks.shared.assets import MODEL_ASSET, SHARDS_ASSET
from trainyard_airflow.tasks.shared.default_args import DEFAULT_ARGS

AWS_CONN_ID = "aws_default"  # the connection of all tasks

with DAG(
    dag_id="tune_mapped",
    dag_display_name="Tune in rounds, then train",
    schedule=None,
    catchup=False,
    max_active_runs=2,
    default_args={**DEFAULT_ARGS, "aws_conn_id": AWS_CONN_ID},
    tags=["trainyard", "sagemaker", "distributed-training", "tuning"],
    doc_md=documentation.TUNE_MAPPED,
) as tune_mapped:
    preflight = PreflightOperator(task_id=TaskId.PREFLIGHT, more_findings=rounds_findings)
    shard = ShardDatasetOperator(
        task_id=TaskId.SHARD,
        spec=task_specs.shard_task_spec,
        asset=SHARDS_ASSET,
        ledger_uri=LEDGER_URI,
    )
    # A round without trials is skipped; the next round and the choice run nevertheless.
    rounds = []
    for number, trials_id in enumerate(TRIAL_TASKS, 1):
        ask = AskTrialsOperator(task_id=f"ask_{number}", number=number, trigger_rule="none_failed")
        trials = TrialJobOperator.partial(
            task_id=trials_id,
            spec=trial_task_spec,
            **JOB_ARGUMENTS,
            aws_conn_id=AWS_CONN_ID,  # `partial` takes no default arguments of operators
            **RETRIES,  # `partial` would override the operator's policy with None
        ).expand(trial=ask.output)
        rounds += [ask, trials]
    tune = ChooseTrialOperator(
        task_id=TaskId.TUNE,
        trials_uri="{{ ti.xcom_pull(task_ids='preflight')['trials_uri'] }}",
        trigger_rule="none_failed",
    )
    train = TrainingJobOperator(
        task_id=TaskId.TRAIN,
        spec=task_specs.train_task_spec,
        notifier=NOTIFIER,
        **JOB_ARGUMENTS,
    )
    evaluate = EvaluationJobOperator(
        task_id=TaskId.EVALUATE,
        spec=task_specs.evaluate_task_spec,
        **JOB_ARGUMENTS,
    )
    register = RegisterIfGoodOperator(
        task_id=TaskId.REGISTER, version=task_specs.register_task_version, asset=MODEL_ASSET
    )
    report = ReportOperator(task_id=TaskId.REPORT, trial_tasks=TRIAL_TASKS).as_teardown()
    outcome = EmptyOperator(
        task_id=TaskId.OUTCOME, on_execute_callback=None, on_failure_callback=None
    )
    chain(preflight, shard, *rounds, tune, train, evaluate, register, report, outcome)
    register >> outcome

# Rules are evaluated afterwards, for the report.
FORM.with_defaults({"tune": True, "watch_rules": False}, subject="tune_mapped").add_to(tune_mapped)
