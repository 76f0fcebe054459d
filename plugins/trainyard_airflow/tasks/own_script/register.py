"""`RegisterIfGoodOperator`: a model version, if the model is as good as the conf asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from trainyard.task_ids import TaskId
from trainyard_airflow.operators.register_model import RegisterModelOperator
from trainyard_airflow.tasks.shared.run_state import RunState, result_of

if TYPE_CHECKING:
    from airflow.sdk import Context


class RegisterIfGoodOperator(RegisterModelOperator):
    """Registers the model of an own script if it meets the conf's `register_when`; without one, always."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Return what `RegisterModelOperator` returns.

        Raises:
            AirflowSkipException: the model is not good enough.
            SpecError: the metric of `register_when` was not measured.
            RejectedRequestError: the service refused the version.
        """
        condition = RunState.of_script(context).conf.condition
        if condition:
            metrics = measured(context)
            if not condition.holds(metrics):
                message = (
                    f"not registered: {condition.metric} is {metrics[condition.metric]:g}, register_when asks for "
                    f"{condition}; the model is {result_of(context, TaskId.TRAIN)['model_artifact']}"
                )
                raise AirflowSkipException(message)
        return super().execute(context)


def measured(context: Context) -> dict[str, float]:
    """Return the metrics of the evaluation, or without one those that the service read from the training's log."""
    evaluation = context["ti"].xcom_pull(task_ids=TaskId.EVALUATE) or {}
    metrics: dict[str, float] = (
        evaluation.get("metrics") or result_of(context, TaskId.TRAIN)["final_metrics"]
    )
    return metrics
