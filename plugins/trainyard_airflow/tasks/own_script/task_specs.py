"""Specs of a run's tasks, derived from its `RunState`. Airflow calls these functions when it renders templates."""
# ruff: noqa: ARG001  # Airflow calls each with the context and its template environment

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trainyard.sagemaker_api.model_package import ModelVersion
from trainyard.specs.smoke_test import smoke_conf
from trainyard.task_ids import TaskId
from trainyard_airflow.tasks.end_to_end.jobs import EVALUATION_FILE, with_judge
from trainyard_airflow.tasks.end_to_end.registration import evaluation_result
from trainyard_airflow.tasks.own_script.jobs import script_evaluation_spec, script_training_spec
from trainyard_airflow.tasks.shared.cost_cap import cap_left_usd
from trainyard_airflow.tasks.shared.model_card import run_card
from trainyard_airflow.tasks.shared.run_state import RunState, result_of
from trainyard_airflow.tasks.shared.serving import run_serving
from trainyard_airflow.tasks.shared.training import training_lineage, watch_plan

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard.sagemaker_api.model_card import ModelCard
    from trainyard.specs.processing_job import ProcessingJobSpec
    from trainyard.specs.script_conf import ScriptConf
    from trainyard.specs.training_job import TrainingJobSpec


_MOST_INPUTS, _MOST_METRICS = 15, 20
"""Maximum inputs and metrics in the lineage of a model version, which may have 50 properties."""


def smoke_task_spec(context: Context, jinja_env: object) -> TrainingJobSpec:
    """Return the training job of the smoke test, with the run's script."""
    state = RunState.of_script(context)
    conf = smoke_conf(state.conf)
    assert conf is not None  # noqa: S101  # without a smoke test preflight skips the task
    return script_training_spec(
        conf,
        paths=state.paths,
        role=state.role,
        task_id=context["ti"].task_id,
        max_cost_usd=cap_left_usd(context, state),
    )


def train_task_spec(context: Context, jinja_env: object) -> TrainingJobSpec:
    """Return the training job of the run's script."""
    from trainyard.planning.script_plan import (
        script_cap,  # a DAG file imports this module
        script_training_budget_usd,
    )

    state = RunState.of_script(context)
    parts = script_cap(state.conf)
    left = cap_left_usd(context, state, kept_back_usd=parts.evaluation_usd if parts else 0.0)
    spec = script_training_spec(
        state.conf,
        paths=state.paths,
        role=state.role,
        task_id=context["ti"].task_id,
        budget_usd=script_training_budget_usd(state.conf),
        max_cost_usd=left,
    )
    return with_judge(spec, state.conf)


def watch_task_plan(context: Context, jinja_env: object) -> dict[str, Any] | None:
    """Return the plan for the evaluation of rules during the training, as `WatchPlan.to_dict()`.

    The result is None if the training is not watched.
    """
    return watch_plan(RunState.of_script(context).conf)


def evaluate_task_spec(context: Context, jinja_env: object) -> ProcessingJobSpec | None:
    """Return the processing job of the run's evaluation script; None if the run has no evaluation script."""
    state = RunState.of_script(context)
    return script_evaluation_spec(
        state.conf,
        paths=state.paths,
        training=result_of(context, TaskId.TRAIN),
        role=state.role,
        max_cost_usd=cap_left_usd(context, state),
    )


def register_task_version(context: Context, jinja_env: object) -> ModelVersion:
    """Return the model version of the run, with its lineage."""
    state, training = RunState.of_script(context), result_of(context, TaskId.TRAIN)
    is_measured = state.conf.evaluation_entry_point is not None
    serving = run_serving(
        state.conf,
        region=state.region,
        trained_on=training.get("instance_type") or state.conf.instance_type,  # groups have several
    )
    return ModelVersion(
        **(asdict(serving) if serving else {}),
        group=state.conf.model_package_group,
        model_artifact=training["model_artifact"],
        source=training["job_name"],
        approval_status=state.conf.approval_status,
        metrics_s3_uri=f"{state.paths.evaluation}/{EVALUATION_FILE}" if is_measured else None,
        model_card=_card(context, state, training),
        lineage=_lineage(context, state, training),
    )


def _card(context: Context, state: RunState[ScriptConf], training: dict[str, Any]) -> ModelCard:
    conf = state.conf
    return run_card(
        state,
        training,
        problem=f"model of {conf.entry_point} in {conf.source_dir}",
        datasets=[_address(each) for each in conf.inputs.values()],
        hyperparameters=conf.hyperparameters,
        evaluation=evaluation_result(context),
        evaluation_datasets=list(conf.evaluation_inputs.values()),
    )


def _lineage(context: Context, state: RunState[Any], training: dict[str, Any]) -> dict[str, Any]:
    evaluation = evaluation_result(context) or {}
    inputs = dict(list(state.conf.inputs.items())[:_MOST_INPUTS])
    metrics = dict(list(training["final_metrics"].items())[:_MOST_METRICS])
    return {
        **training_lineage(training, paths=state.paths),
        "entry_point": state.conf.entry_point,
        "source_dir": state.conf.source_dir,
        "evaluation_job": evaluation.get("job_name"),
        **{f"input.{name}": _address(value) for name, value in inputs.items()},
        **{f"metric.{name}": value for name, value in metrics.items()},
    }


def _address(channel: Any) -> str:
    """Return the address of a channel's data on one line; for a mapping, its address fields separated by spaces."""
    if isinstance(channel, str):
        return channel
    parts = ("s3_data", "dataset_arn", "file_system_id", "directory_path")
    return " ".join(str(channel[name]) for name in parts if channel.get(name))
