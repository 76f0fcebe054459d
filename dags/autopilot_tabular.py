"""DAG from a table to a registered model by one AutoML job (SageMaker Autopilot)."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, chain

from trainyard.task_ids import TaskId
from trainyard_airflow.operators.automl_tabular import AutoMLTabularOperator
from trainyard_airflow.operators.processing_job import ProcessingJobOperator
from trainyard_airflow.operators.register_model import RegisterModelOperator
from trainyard_airflow.tasks.automl import specs
from trainyard_airflow.tasks.automl.params import FORM
from trainyard_airflow.tasks.automl.report import AutoMLReportOperator
from trainyard_airflow.tasks.shared import documentation
from trainyard_airflow.tasks.shared.default_args import DEFAULT_ARGS, JOB_RETRIES

AWS_CONN_ID = "aws_default"  # the connection of all tasks

with DAG(
    dag_id="autopilot_tabular",
    dag_display_name="Autopilot for a table",
    schedule=None,
    catchup=False,
    default_args={**DEFAULT_ARGS, "aws_conn_id": AWS_CONN_ID},
    max_active_runs=4,
    tags=["trainyard", "sagemaker", "automl"],
    doc_md=documentation.AUTOPILOT,
) as autopilot_tabular:
    prepare = ProcessingJobOperator(
        task_id=TaskId.PREPARE, spec=specs.prepare_spec, retries=JOB_RETRIES
    )
    search = AutoMLTabularOperator(
        task_id=TaskId.SEARCH, spec=specs.search_spec, retries=JOB_RETRIES
    )
    evaluate = ProcessingJobOperator(
        task_id=TaskId.EVALUATE, spec=specs.evaluate_spec, retries=JOB_RETRIES
    )
    register = RegisterModelOperator(task_id=TaskId.REGISTER, version=specs.register_version)
    # A teardown runs in every case, even if the run was marked failed.
    report = AutoMLReportOperator(task_id=TaskId.REPORT).as_teardown()
    # This task determines the run's state: it succeeds only if every task before it did.
    outcome = EmptyOperator(
        task_id=TaskId.OUTCOME, on_execute_callback=None, on_failure_callback=None
    )
    chain(prepare, search, evaluate, register, report, outcome)
    register >> outcome

FORM.add_to(autopilot_tabular)
