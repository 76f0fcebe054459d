"""`RegisterIfGoodOperator`: a model version, if the model is as good as the conf asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from trainyard.runs.evaluation_metrics import metrics_of
from trainyard.task_ids import TaskId
from trainyard_airflow.operators.register_model import RegisterModelOperator
from trainyard_airflow.tasks.shared.run_state import RunState, result_of

if TYPE_CHECKING:
    from airflow.sdk import Context


class RegisterIfGoodOperator(RegisterModelOperator):
    """Registers the model of an own script if it meets the conf's `register_when`; without one, always."""

    def __init__(self, *, has_own_evaluation: bool = False, **kwargs: Any) -> None:
        """`has_own_evaluation`: the DAG's author put a task of their own in the place of the evaluation."""
        super().__init__(**kwargs)
        self.has_own_evaluation = has_own_evaluation

    def execute(self, context: Context) -> dict[str, Any]:
        """Return what `RegisterModelOperator` returns.

        Raises:
            AirflowSkipException: the model is not good enough.
            SpecError: the metric of `register_when` was not measured.
            RejectedRequestError: the service refused the version.
        """
        condition = RunState.of_script(context).conf.condition
        if condition:
            metrics = measured(context, has_own_evaluation=self.has_own_evaluation)
            if not condition.holds(metrics):
                message = (
                    f"not registered: {condition.metric} is {metrics[condition.metric]:g}, register_when asks for "
                    f"{condition}; the model is {result_of(context, TaskId.TRAIN)['model_artifact']}"
                )
                raise AirflowSkipException(message)
        return super().execute(context)


def measured(context: Context, *, has_own_evaluation: bool) -> dict[str, float]:
    """Return the metrics of the evaluation, or without one those that the service read from the training's log."""
    evaluation = evaluation_result(context)
    if evaluation is None and has_own_evaluation:
        return {}
    if evaluation is None:
        trained: dict[str, float] = result_of(context, TaskId.TRAIN)["final_metrics"]
        return trained
    return metrics_of({"metrics": evaluation.get("metrics") or {}})


def evaluation_result(context: Context) -> dict[str, Any] | None:
    """Return what the evaluation returned, empty if that is no mapping; None if no evaluation ran."""
    returned = context["ti"].xcom_pull(task_ids=TaskId.EVALUATE)
    if returned is None:
        return None
    return returned if isinstance(returned, dict) else {}
