"""Model card of a run's model, from the results of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.runs.evaluation_metrics import metrics_of
from trainyard.sagemaker_api.model_card import ModelCard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard_airflow.tasks.shared.run_paths import RunPaths
    from trainyard_airflow.tasks.shared.run_state import RunState


def run_card(
    state: RunState[Any],
    training: Mapping[str, Any],
    *,
    problem: str,
    datasets: Sequence[str],
    hyperparameters: Mapping[str, Any],
    observations: str | None = None,
    evaluation: Mapping[str, Any] | None = None,
    evaluation_datasets: Sequence[str] = (),
) -> ModelCard:
    """Return the model card of a run. Values under secret-like names are masked.

    Args:
        state: the run.
        training: result of the training task.
        problem: the task that the model solves, or the script that made it.
        datasets: addresses of the training's data.
        hyperparameters: hyperparameters of the training.
        observations: facts of the data, such as numbers of rows.
        evaluation: result of the evaluation task, if there is one.
        evaluation_datasets: addresses of the evaluation's data.
    """
    from trainyard.cost.job_cost import job_cost  # a DAG file imports this module
    from trainyard_airflow.hooks.redaction import redacted

    paths, found = state.paths, evaluation or {}
    is_single = training.get("attempt", 1) == 1  # a snapshot has the cost of the last attempt only
    cost = job_cost(training).cost_usd if is_single else None
    return ModelCard(
        creator=creator_of(paths),
        artifact=training["model_artifact"],
        intended_uses=state.conf.intended_uses,
        training_job_arn=training.get("arn") or None,
        training_image=training.get("image_uri"),
        datasets=datasets,
        observations=observations,
        metrics=training.get("final_metrics") or {},
        hyperparameters=redacted(hyperparameters),
        evaluation_metrics=metrics_of({"metrics": found.get("metrics") or {}}),
        evaluation_job_arn=found.get("arn") or None,
        evaluation_datasets=evaluation_datasets,
        details={
            "problem": problem,
            "report": paths.report_html,
            "instances": _instances(training),
            "training_image_digest": training.get("image_digest"),
            "code_sha256": (training.get("code") or {}).get("sha256"),
            "training_cost_usd": None if cost is None else f"{cost:.2f}",
            "ended_by": training.get("ended_by"),
        },
    )


def creator_of(paths: RunPaths) -> str:
    """Return the text that names the run as the creator of its model."""
    return f"Trainyard: run {paths.run_id} of DAG {paths.dag_id}"


def data_observations(dataset: Mapping[str, Any]) -> str:
    """Return one line with the fingerprint of a sharded data set, and the number of rows and tokens of each split."""
    splits = (dataset.get("splits") or {}).items()
    parts = [f"{name}: {_size(split)}" for name, split in splits]
    return "; ".join([*parts, f"data fingerprint {dataset['fingerprint']}"])


def _size(split: Mapping[str, Any]) -> str:
    tokens = split.get("num_tokens")
    return f"{split['num_rows']} rows" + (f", {tokens} tokens" if tokens else "")


def _instances(training: Mapping[str, Any]) -> str | None:
    name = training.get("instance_type")
    return f"{training.get('instance_count') or 1} x {name}" if name else None
