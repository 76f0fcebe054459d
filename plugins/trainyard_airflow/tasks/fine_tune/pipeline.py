"""`fine_tune_pipeline`: factory of a DAG that fine-tunes a language model, for users' own DAG files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.specs.fine_tune_conf import FineTuneConf
from trainyard.task_ids import TaskId
from trainyard_airflow.tasks.fine_tune.data_check import CheckDataOperator
from trainyard_airflow.tasks.fine_tune.params import FORM
from trainyard_airflow.tasks.own_script.pipeline import ScriptRecipe, script_pipeline
from trainyard_airflow.tasks.own_script.preflight import ScriptPreflightOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import DAG

    from trainyard.planning.auto_plan import AutoChoice


class FineTunePreflightOperator(ScriptPreflightOperator):
    """Checks a fine-tuning, and returns the `RunState` for all other tasks."""

    form: ClassVar = FORM

    def resolve(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], AutoChoice | None]:
        """Return (params of a `ScriptConf` with the fine-tuning script, None).

        Raises:
            SpecError: the fine-tuning's params are invalid; it lists all findings.
        """
        return FineTuneConf.from_mapping(params).script_params(), None


FINE_TUNING = ScriptRecipe(
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
    """Return a DAG that checks the data, fine-tunes, compares the model with the base model, and registers it.

    Args:
        dag_id: the DAG's id. Write `dag_id=` in the DAG file itself: Airflow ignores a file that does not
            contain the text `dag`.
        aws_conn_id: the connection of all tasks.
        schedule: the schedule, in one of the forms of Airflow's `DAG`.
        dag_arguments: further arguments of the DAG, such as tags or max_active_runs.
        defaults: defaults of the form's fields, by the names of the REST conf: base_model, train_data,
            method, ...

    Raises:
        SpecError: `defaults` has unknown names, or values that the form would reject; it lists all of them.
    """
    return script_pipeline(
        dag_id=dag_id,
        aws_conn_id=aws_conn_id,
        schedule=schedule,
        dag_arguments=dag_arguments,
        recipe=FINE_TUNING,
        **defaults,
    )
