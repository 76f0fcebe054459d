"""Specs of the jobs of a run with the user's own script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.specs.processing_job import ProcessingInput, ProcessingJobSpec, ProcessingOutput
from trainyard.specs.training_job import TrainingJobSpec
from trainyard_airflow.tasks.end_to_end.jobs import evaluation_image
from trainyard_airflow.tasks.shared.cluster import training_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.specs.script_conf import ScriptConf
    from trainyard_airflow.tasks.shared.run_paths import RunPaths

_INPUT, _OUTPUT = "/opt/ml/processing/input", "/opt/ml/processing/output/evaluation"


def script_training_spec(
    conf: ScriptConf,
    *,
    paths: RunPaths,
    role: str,
    task_id: str,
    budget_usd: float | None = None,
    max_cost_usd: float | None = None,
) -> TrainingJobSpec:
    """Return the training job of a run.

    Args:
        conf: the run's conf.
        paths: S3 addresses of the run.
        role: ARN of the execution role.
        task_id: id of the task, part of the prefix of its checkpoints.
        budget_usd: limit for the cost of all attempts; None = no limit.
        max_cost_usd: rest of the run's cost cap for all attempts; None = no cap.
    """
    return TrainingJobSpec(
        role=role,
        output_path=paths.output,
        image_uri=conf.image_uri,
        framework=conf.framework,
        framework_version=conf.framework_version,
        py_version=conf.py_version,
        forward_sigterm=True,
        entry_point=conf.entry_point,
        source_dir=conf.source_dir,
        code_location=paths.code,
        requirements=conf.requirements,
        hyperparameters=conf.hyperparameters,
        arguments=conf.arguments,
        distribution=conf.launch,
        environment=conf.environment,
        **_cluster(conf),
        budget_usd=budget_usd,
        max_cost_usd=max_cost_usd,
        inputs=conf.inputs,
        input_mode=conf.input_mode,
        subnets=conf.subnets,
        security_group_ids=conf.security_group_ids,
        checkpoint_s3_uri=paths.checkpoints(task_id),
        metric_definitions=conf.metric_definitions,
    )


def _cluster(conf: ScriptConf) -> dict[str, Any]:
    """Return the fields of `TrainingJobSpec` that define the cluster and its limits; see `training_cluster`.

    If the conf has instance groups, they replace the instance type and count.
    """
    cluster = training_cluster(conf)
    if not conf.instance_groups:
        return cluster
    groups = {"instance_groups": conf.instance_groups}
    return {**cluster, "instance_type": None, "instance_count": None, **groups}


def script_evaluation_spec(
    conf: ScriptConf,
    *,
    paths: RunPaths,
    training: Mapping[str, Any],
    role: str,
    max_cost_usd: float | None = None,
) -> ProcessingJobSpec | None:
    """Return the processing job that evaluates the model; None if the run has no evaluation script.

    Args:
        conf: the run's conf.
        paths: S3 addresses of the run.
        training: the result of the training task.
        role: ARN of the execution role.
        max_cost_usd: rest of the run's cost cap for the job; None = no cap.
    """
    from trainyard.planning.script_plan import script_evaluation  # a DAG file imports this module

    plan = script_evaluation(conf)
    if plan is None:
        return None
    inputs = {"model": str(training["model_artifact"]), **conf.evaluation_inputs}
    return ProcessingJobSpec(
        role=role,
        instance_type=plan.instance_type,
        image_uri=evaluation_image(conf, training, plan.instance_type),
        framework=conf.framework,
        framework_version=conf.framework_version,
        py_version=conf.py_version,
        entry_point=conf.evaluation_entry_point,
        source_dir=conf.source_dir,
        code_location=paths.code,
        environment=conf.environment,
        inputs=tuple(
            ProcessingInput(source=uri, destination=f"{_INPUT}/{name}", input_name=name)
            for name, uri in inputs.items()
        ),
        outputs=(
            ProcessingOutput(
                source=_OUTPUT, destination=paths.evaluation, output_name="evaluation"
            ),
        ),
        subnets=conf.subnets,
        security_group_ids=conf.security_group_ids,
        volume_size=plan.volume_size_gb,
        max_run=plan.max_run_s,
        max_cost_usd=max_cost_usd,
        stop_reserve_s=conf.stop_reserve_s,
    )
