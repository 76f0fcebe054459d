"""`plan_training`: DAG that plans instances, mesh, time and cost of a training; started manually or by REST."""

from __future__ import annotations

from airflow.sdk import DAG

from trainyard.task_ids import TaskId
from trainyard_airflow.tasks.end_to_end.planning import FORM, PlanOperator
from trainyard_airflow.tasks.shared import documentation
from trainyard_airflow.tasks.shared.default_args import DEFAULT_ARGS

with DAG(
    dag_id="plan_training",
    dag_display_name="Plan training",
    schedule=None,
    catchup=False,
    params=FORM.params(),
    default_args=DEFAULT_ARGS,
    tags=["trainyard", "planning"],
    doc_md=documentation.PLAN,
) as plan_training:
    PlanOperator(task_id=TaskId.PLAN)
