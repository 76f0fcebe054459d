"""`script_pipeline`: factory of a DAG that trains with a user's script, for users' own DAG files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from trainyard.errors import Finding, SpecError
from trainyard.task_ids import TaskId
from trainyard_airflow.operators.processing_job import ProcessingJobOperator
from trainyard_airflow.tasks.end_to_end.evaluation_job import stored_metrics
from trainyard_airflow.tasks.end_to_end.jobs import EVALUATION_FILE
from trainyard_airflow.tasks.end_to_end.run_tasks import JOB_ARGUMENTS, add_run_tasks
from trainyard_airflow.tasks.end_to_end.stages import Stage, Stages
from trainyard_airflow.tasks.own_script import task_specs
from trainyard_airflow.tasks.own_script.preflight import ScriptPreflightOperator
from trainyard_airflow.tasks.shared.default_args import dag_arguments_with

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.sdk import BaseOperator, Context

    from trainyard_airflow.jobs.steps import Done


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRecipe:
    """Parts of the pipeline that differ between families of runs.

    Attributes:
        preflight: class of the first task. Its `form` declares the DAG's params. Its `resolve` returns the
            params of a `ScriptConf`.
        check: creates a task that starts no job, and that runs between `preflight` and `train`; None = no such
            task.
    """

    preflight: type[ScriptPreflightOperator] = ScriptPreflightOperator
    check: Callable[[], BaseOperator] | None = None


OWN_SCRIPT = ScriptRecipe()
_OTHER_NAMES = {"max_run": "max_run_s", "max_wait": "max_wait_s", "volume_size": "volume_size_gb"}
"""Fields of the form whose name has a unit, by the estimator's name. All other fields have the estimator's names."""
_OF_THE_RUN = {
    "output_path": "remove it, and set bucket and prefix",
    "code_location": "remove it, and set bucket and prefix",
    "checkpoint_s3_uri": "remove it, and set bucket and prefix",
    "checkpoint_local_path": "remove it: the path is always /opt/ml/checkpoints",
    "base_job_name": "remove it: the job's name is derived from DAG, run and task",
    "sagemaker_session": "remove it, and set aws_conn_id",
}
"""Estimator settings that the run sets itself, and the next step of their errors."""


def script_pipeline(
    *,
    dag_id: str,
    aws_conn_id: str = "aws_default",
    prepare: Stage = None,
    evaluate: Stage = True,
    register: Stage = True,
    schedule: Any = None,
    dag_arguments: Mapping[str, Any] | None = None,
    recipe: ScriptRecipe = OWN_SCRIPT,
    estimator: Mapping[str, Any] | None = None,
    **defaults: Any,
) -> DAG:
    """Return a DAG that trains with a user's script, watches the training, and evaluates and registers the model.

    Args:
        dag_id: the DAG's id. Pass it by keyword: Airflow ignores files that do not contain the text `dag`.
        aws_conn_id: the connection of all tasks, such as a team's connection.
        prepare: creates a task between `preflight` and `train`, such as a Glue job that writes the data; see
            `Stages`.
        evaluate: replaces the run's own evaluation, or leaves it out; see `Stages`.
        register: replaces the run's own registration, or leaves it out; see `Stages`.
        schedule: the schedule, in one of the forms of Airflow's `DAG`.
        dag_arguments: further arguments of the DAG, such as tags or max_active_runs.
        recipe: form, first task and check of a family of runs, such as fine-tuning.
        estimator: keyword arguments of an estimator of SDK v2, as defaults of the form's fields.
        defaults: default values by the name of the form's field, as in the REST conf: entry_point, source_dir,
            ... They override those of `estimator`.

    Raises:
        SpecError: a check failed, or the function of a stage returned a wrong task. Airflow reports the error
            as the import error of the DAG file. There are three checks. The first one that fails raises the
            error, which lists all faults that this check found:

            1. `estimator` has settings that the run sets itself.
            2. `defaults` or `estimator` has unknown names, or values that the form would reject.
            3. A stage is invalid, or a default would have no effect because of the stages.
    """
    given = {**estimator_defaults(estimator or {}), **defaults}
    form = recipe.preflight.form.with_defaults(given, subject=f"pipeline {dag_id}")
    stages = Stages(
        prepare=prepare,
        evaluate=evaluate,
        register=register,
        own_evaluation=lambda: ScriptEvaluationOperator(
            task_id=TaskId.EVALUATE, spec=task_specs.evaluate_task_spec, **JOB_ARGUMENTS
        ),
        is_evaluation_optional=True,
    )
    stages.check(given, subject=f"pipeline {dag_id}")
    arguments = dag_arguments_with(dag_arguments or {}, aws_conn_id=aws_conn_id)
    with DAG(dag_id=dag_id, schedule=schedule, **arguments) as dag:
        preflight = recipe.preflight(task_id=TaskId.PREFLIGHT, stages=stages)
        before = [recipe.check()] if recipe.check else []
        add_run_tasks(preflight, [*before, *stages.prepared()], specs=task_specs, stages=stages)
    form.add_to(dag)
    return dag


class ScriptEvaluationOperator(ProcessingJobOperator):
    """Runs the evaluation script; returns the job's snapshot with the `metrics` of its evaluation.json."""

    def returned(self, context: Context, done: Done) -> dict[str, Any]:  # noqa: ARG002
        """Return the job's result with its metrics.

        Raises:
            SpecError: the script wrote no evaluation.json, or the file has no numeric metric.
        """
        uri = f"{self.spec.outputs[0].destination}/{EVALUATION_FILE}"
        metrics = stored_metrics(self.clients, uri)
        if not metrics:
            missing = EVALUATION_FILE if metrics is None else "numeric metric"
            wrong = Finding(
                where=self.spec.entry_point,
                what=f"wrote no {missing}",
                got=f"no object {uri}" if metrics is None else f"the object {uri}",
                allowed='a JSON object such as {"metrics": {"accuracy": 0.93}}',
                next_step=f"write the metrics to {self.spec.outputs[0].source}/{EVALUATION_FILE}",
            )
            raise SpecError(wrong, subject="evaluation")
        self.log.info("Measured: %s", ", ".join(f"{n} {v:g}" for n, v in metrics.items()))
        return {**done.result, "metrics": metrics}


def estimator_defaults(estimator: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of an estimator of SDK v2 as defaults of the DAG's params.

    Unknown names are returned unchanged. `script_pipeline` rejects them, together with all other faults.

    Raises:
        SpecError: `estimator` has settings that the run sets itself. The error lists all of them.
    """
    made = [
        Finding(
            where=f"estimator.{name}",
            what="is set by the run itself",
            got=str(estimator[name]),
            next_step=_OF_THE_RUN[name],
        )
        for name in estimator
        if name in _OF_THE_RUN
    ]
    if made:
        raise SpecError(made, subject="estimator")
    defaults = {_OTHER_NAMES.get(name, name): value for name, value in estimator.items()}
    if metrics := defaults.get("metric_definitions"):
        defaults["metric_definitions"] = [
            {key.lower(): value for key, value in each.items()} for each in metrics
        ]
    return defaults
