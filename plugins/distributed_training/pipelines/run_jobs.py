"""The jobs of an end-to-end run as specs: from the run's conf and what earlier tasks returned. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from include.planning.run_cost import evaluation_instance_type, training_budget_usd
from include.specs.metrics import TRAINYARD_METRICS
from include.specs.processing_job import ProcessingInput, ProcessingJobSpec, ProcessingOutput
from include.specs.training_job import TrainingJobSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distributed_training.pipelines.run_paths import RunPaths
    from include.specs.run_conf import RunConf

SOURCE_DIR = "training_scripts"
TRAINING_ENTRY_POINT = "train_ddp.py"
EVALUATION_ENTRY_POINT = "evaluate.py"
EVALUATION_FILE = "evaluation.json"

_INPUT = "/opt/ml/processing/input"
_OUTPUT = "/opt/ml/processing/output"
_FROM_CONF = (
    "model",
    "num_layers",
    "num_heads",
    "hidden_size",
    "sequence_length",
    "global_batch_size",
    "micro_batch_size",
    "max_steps",
    "learning_rate",
    "warmup_steps",
    "precision",
    "seed",
    "eval_interval",
    "checkpoint_interval",
    "mean_time_to_interruption_s",
    "early_stopping_patience",
)


def training_spec(
    conf: RunConf, *, paths: RunPaths, dataset_uri: str, role: str, task_id: str
) -> TrainingJobSpec:
    """Return the training job of a run on the sharded data set at `dataset_uri`."""
    hyperparameters: dict[str, Any] = {name: getattr(conf, name) for name in _FROM_CONF}
    if conf.target_column:
        hyperparameters["target_column"] = conf.target_column
    return TrainingJobSpec(
        role=role,
        output_path=paths.output,
        image_uri=conf.image_uri,
        forward_sigterm=True,
        entry_point=TRAINING_ENTRY_POINT,
        source_dir=SOURCE_DIR,
        code_location=paths.code,
        hyperparameters={**hyperparameters, **conf.hyperparameters},
        distribution={
            "torch_distributed": {
                "enabled": True,
                "processes_per_host": conf.processes_per_instance,
            }
        },
        **_capacity(conf),
        volume_size=conf.volume_size_gb,
        max_run=conf.max_run_s,
        heartbeat_timeout_s=conf.heartbeat_timeout_s,
        budget_usd=training_budget_usd(conf),
        inputs={
            "train": f"{dataset_uri}/train/",
            "validation": f"{dataset_uri}/validation/",
            "index": f"{dataset_uri}/index/",
        },
        checkpoint_s3_uri=paths.checkpoints(task_id),
        metric_definitions=TRAINYARD_METRICS,
    )


def evaluation_spec(
    conf: RunConf, *, paths: RunPaths, dataset_uri: str, training: Mapping[str, Any], role: str
) -> ProcessingJobSpec:
    """Return the processing job that measures the trained model on the test split.

    Args:
        conf: what the run shall do.
        paths: where it keeps what.
        dataset_uri: the sharded data set.
        training: the result of the training task.
        role: the execution role's ARN.
    """
    sources = {
        "model": str(training["model_artifact"]),
        "test": f"{dataset_uri}/test/",
        "index": f"{dataset_uri}/index/",
    }
    return ProcessingJobSpec(
        role=role,
        instance_type=evaluation_instance_type(conf, trained_on=training.get("instance_type")),
        image_uri=training.get("image_uri") or conf.image_uri,
        entry_point=EVALUATION_ENTRY_POINT,
        source_dir=SOURCE_DIR,
        inputs=tuple(
            ProcessingInput(source=uri, destination=f"{_INPUT}/{name}", input_name=name)
            for name, uri in sources.items()
        ),
        outputs=(
            ProcessingOutput(
                source=f"{_OUTPUT}/evaluation",
                destination=paths.evaluation,
                output_name="evaluation",
            ),
        ),
        volume_size=conf.volume_size_gb,
        max_run=conf.max_run_s,
    )


def _capacity(conf: RunConf) -> dict[str, Any]:
    """Return what the job runs on: the ladder where there is one, else its one rung."""
    if conf.capacity_ladder:
        return {
            "capacity_ladder": conf.capacity_ladder,
            "instance_count": conf.instance_count,
            "max_wait": conf.max_wait_s if conf.may_use_spot else None,
        }
    is_spot = conf.use_spot_instances
    return {
        "instance_type": conf.instance_type,
        "instance_count": conf.instance_count,
        "use_spot_instances": is_spot,
        "max_wait": (conf.max_wait_s or 2 * conf.max_run_s) if is_spot else None,
    }
