"""`RegisterIfGoodOperator`: registration of a model that meets the conf's condition.

If the conf has `approval`, a person must approve the registration first.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from trainyard.runs.evaluation_metrics import metrics_of
from trainyard.task_ids import TaskId
from trainyard_airflow.operators.person_question import Question, answer_in, ask_person, end_wait
from trainyard_airflow.operators.register_model import RegisterModelOperator
from trainyard_airflow.tasks.shared.run_state import RunState, result_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from trainyard.specs.base_run_conf import BaseRunConf


APPROVE, REJECT = "Register the model", "Do not register it"


class RegisterIfGoodOperator(RegisterModelOperator):
    """Registers a run's model if it meets the conf's `condition`. Without a condition, every model is registered.

    If the conf has `approval`, a person must approve the registration first.
    """

    def __init__(self, *, has_own_evaluation: bool = False, **kwargs: Any) -> None:
        """Create the task.

        Args:
            has_own_evaluation: whether the DAG's author replaced the evaluation with another task.
            kwargs: arguments of the base class.
        """
        super().__init__(**kwargs)
        self.has_own_evaluation = has_own_evaluation

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the result of `RegisterModelOperator`.

        Raises:
            AirflowSkipException: the model does not meet the condition (`register_when` in the conf).
            SpecError: the metric of the condition was not measured.
            RejectedRequestError: the service rejected the version.
            TaskAwaitingInput: a person must approve; `execute_answered` resumes.
        """
        conf = RunState.of_any(context).conf
        condition = conf.condition
        if condition:
            metrics = measured(context, has_own_evaluation=self.has_own_evaluation)
            if not condition.holds(metrics):
                message = (
                    f"the model is not registered: {condition.metric} is {metrics[condition.metric]:g}, but "
                    f"register_when requires {condition}; the model is at "
                    f"{result_of(context, TaskId.TRAIN)['model_artifact']}"
                )
                raise AirflowSkipException(message)
        if conf.approval:
            from trainyard_airflow.hooks.notifications import notify

            ask_person(
                context,
                self._question(context, conf),
                then="execute_answered",
                kwargs={},
                send=partial(notify, self.clients, RunState.of_any(context).notifier),
                facts={"step": "the training has ended"},
            )
        return super().execute(context)

    def execute_answered(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Register the model if a person approved it; return the result of `RegisterModelOperator`.

        Raises:
            AirflowSkipException: the person rejected the model, or nobody answered in time.
            RejectedRequestError: the service rejected the version.
        """
        end_wait(context)
        answer, who = answer_in(event)
        if answer != APPROVE:
            how = "nobody answered in time" if answer is None else f"{who} rejected the model"
            raise AirflowSkipException(
                f"the model is not registered: {how}; the model is at "
                f"{result_of(context, TaskId.TRAIN)['model_artifact']}"
            )
        self.log.info("%s approved the model", who)
        return super().execute(context)

    def _question(self, context: Context, conf: BaseRunConf) -> Question:
        metrics = measured(context, has_own_evaluation=self.has_own_evaluation)
        metrics = metrics or result_of(context, TaskId.TRAIN).get("final_metrics") or {}
        lines = "\n".join(f"- {name}: {value:.6g}" for name, value in metrics.items())
        model = result_of(context, TaskId.TRAIN)["model_artifact"]
        wait = timedelta(seconds=conf.approval_timeout_s)
        return Question(
            subject=f"Register the model of {context['ti'].dag_id}, run {context['ti'].run_id}?",
            body=f"{lines or '- no metrics'}\n- model: {model}\n- register_when: "
            f"{conf.condition or 'none'}\n\nWithout an answer within {wait}: *{REJECT}*.",
            options=(APPROVE, REJECT),
            default=REJECT,
            timeout_s=conf.approval_timeout_s,
        )


def measured(context: Context, *, has_own_evaluation: bool) -> dict[str, float]:
    """Return the metrics of the evaluation or, if none ran, the final metrics of the training.

    The service has read the training's metrics from the log of the training job. If the DAG's author replaced
    the evaluation with another task, and that other task returned nothing, the result is empty.

    Args:
        context: Airflow's context of the task.
        has_own_evaluation: whether the DAG's author replaced the evaluation.
    """
    evaluation = evaluation_result(context)
    if evaluation is None and has_own_evaluation:
        return {}
    if evaluation is None:
        trained: dict[str, float] = result_of(context, TaskId.TRAIN)["final_metrics"]
        return trained
    return metrics_of({"metrics": evaluation.get("metrics") or {}})


def evaluation_result(context: Context) -> dict[str, Any] | None:
    """Return the result of the evaluation, empty if it is not a mapping; None if no evaluation ran."""
    returned = context["ti"].xcom_pull(task_ids=TaskId.EVALUATE)
    if returned is None:
        return None
    return returned if isinstance(returned, dict) else {}
