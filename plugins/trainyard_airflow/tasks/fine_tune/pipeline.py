"""`fine_tune_pipeline`: a DAG that fine-tunes a language model, for DAG files of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.task_ids import TaskId
from trainyard_airflow.tasks.fine_tune.data_check import CheckDataOperator
from trainyard_airflow.tasks.fine_tune.params import fine_tune_params
from trainyard_airflow.tasks.fine_tune.preflight import FineTunePreflightOperator
from trainyard_airflow.tasks.own_script.pipeline import ScriptRecipe, script_pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import DAG

FINE_TUNING = ScriptRecipe(
    params=fine_tune_params,
    preflight=FineTunePreflightOperator,
    check=lambda: CheckDataOperator(task_id=TaskId.CHECK_DATA),
)


def fine_tune_pipeline(
    *,
    dag_id: str,
    aws_conn_id: str = "aws_default",
    schedule: Any = None,
    dag_arguments: Mapping[str, Any] | None = None,
    **defaults: Any,
) -> DAG:
    """Return a DAG that checks the data, fine-tunes, measures against the base model and registers.

    Args:
        dag_id: the DAG's. Airflow passes over files without the letters "dag": give it by name.
        aws_conn_id: the connection of all its tasks.
        schedule: as Airflow's DAG takes it.
        dag_arguments: further arguments of the DAG, such as tags or max_active_runs.
        defaults: the form's fields, by the names of the REST conf: base_model, train_data, method, ...

    Raises:
        SpecError: names of no field, and values that the form would refuse, all at once.
    """
    return script_pipeline(
        dag_id=dag_id,
        aws_conn_id=aws_conn_id,
        schedule=schedule,
        dag_arguments=dag_arguments,
        recipe=FINE_TUNING,
        **defaults,
    )
