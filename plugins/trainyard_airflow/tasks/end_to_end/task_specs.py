"""Specs of a run's tasks, derived from its `RunState`. Airflow calls these functions when it renders templates."""
# ruff: noqa: ARG001  # Airflow calls each with the context and its template environment

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from trainyard.cost.cost_cap import CostCap
from trainyard.sagemaker_api.model_package import ModelVersion
from trainyard.specs.data_mixture import parts_of
from trainyard.specs.run_conf_tuning import with_values
from trainyard.specs.smoke_test import smoke_conf
from trainyard.task_ids import TaskId
from trainyard.tuning.provenance import provenance
from trainyard.tuning.result import TuningResult
from trainyard_airflow.jobs.sharding import MixtureSpec, ShardingSpec
from trainyard_airflow.jobs.sharding_job import ShardingJob
from trainyard_airflow.tasks.end_to_end.jobs import (
    evaluation_spec,
    training_hyperparameters,
    training_spec,
    tuning_spec,
    with_judge,
)
from trainyard_airflow.tasks.end_to_end.registration import evaluation_result
from trainyard_airflow.tasks.shared.cost_cap import cap_left_usd
from trainyard_airflow.tasks.shared.default_args import JOB_RETRIES
from trainyard_airflow.tasks.shared.model_card import data_observations, run_card
from trainyard_airflow.tasks.shared.run_state import RunState, result_of
from trainyard_airflow.tasks.shared.serving import run_serving
from trainyard_airflow.tasks.shared.training import training_lineage, watch_plan

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard.sagemaker_api.model_card import ModelCard
    from trainyard.specs.processing_job import ProcessingJobSpec
    from trainyard.specs.run_conf import RunConf
    from trainyard.specs.training_job import TrainingJobSpec
    from trainyard.specs.tuning_job import TuningJobSpec
    from trainyard_airflow.tasks.end_to_end.jobs import LastStepEvaluation

log = logging.getLogger(__name__)


def shard_task_spec(context: Context, jinja_env: object) -> ShardingSpec | MixtureSpec:
    """Return the sharding spec of the run's sources, with a number of shards that fits the training's ranks."""
    state = RunState.of(context)
    conf, job = state.conf, _sharding_job(context, state)
    datasets = {
        name: _source_spec(each, destination=state.paths.root)
        for name, each in conf.by_source.items()
    }
    if not conf.data_mixture:
        return replace(datasets[""], job=job)
    return MixtureSpec(
        datasets=datasets,
        parts=parts_of({name: each.weight for name, each in conf.data_mixture.items()}),
        destination=state.paths.root,
        job=job,
    )


def _source_spec(conf: RunConf, *, destination: str) -> ShardingSpec:
    """Return the sharding spec of a conf's single source."""
    from trainyard.sharding import DataFormat, Source
    from trainyard.sharding.settings import settings_of_run

    return ShardingSpec(
        source=Source(
            uri=conf.source,
            data_format=DataFormat(conf.data_format),
            max_source_bytes=conf.max_source_bytes,
        ),
        settings=settings_of_run(conf),
        destination=destination,
    )


def _sharding_job(context: Context, state: RunState[RunConf]) -> ShardingJob | None:
    conf = state.conf
    if not conf.shard_instance_count:
        return None
    from trainyard.planning.evaluation_plan import (
        processing_run_s,  # a DAG file imports this module
    )
    from trainyard.planning.run_cost import run_cap

    parts = run_cap(conf)
    left = cap_left_usd(context, state, kept_back_usd=parts.after_sharding_usd if parts else 0.0)

    return ShardingJob(
        instance_count=conf.shard_instance_count,
        instance_type=conf.shard_instance_type,
        role=state.role,
        code_location=state.paths.code,
        image_uri=conf.image_uri,
        volume_size=conf.volume_size_gb,
        max_run=processing_run_s(conf),
        cap=None
        if left is None
        else CostCap(max_cost_usd=left, stop_reserve_s=conf.stop_reserve_s),
    )


def smoke_task_spec(context: Context, jinja_env: object) -> TrainingJobSpec:
    """Return the training job of the smoke test, on the run's shards."""
    state = RunState.of(context)
    conf = smoke_conf(state.conf)
    assert conf is not None  # noqa: S101  # without a smoke test preflight skips the task
    return training_spec(
        conf,
        paths=state.paths,
        dataset_uri=result_of(context, TaskId.SHARD)["dataset_uri"],
        role=state.role,
        task_id=context["ti"].task_id,
        max_cost_usd=cap_left_usd(context, state),
    )


def tune_task_spec(context: Context, jinja_env: object) -> TuningJobSpec:
    """Return the spec of the tuning job for the run's search; its data are the run's shards."""
    state = RunState.of(context)
    return tuning_spec(
        state.conf,
        paths=state.paths,
        dataset_uri=result_of(context, TaskId.SHARD)["dataset_uri"],
        role=state.role,
    )


def train_task_spec(context: Context, jinja_env: object) -> TrainingJobSpec:
    """Return the training job on the run's shards, with the best trial's hyperparameters if there was a search."""
    state = RunState.of(context)
    from trainyard.planning.run_cost import (
        run_cap,  # a DAG file imports this module
        training_budget_usd,
    )

    parts = run_cap(state.conf)
    left = cap_left_usd(context, state, kept_back_usd=parts.evaluation_usd if parts else 0.0)
    conf, found = _trained(context)
    if found:
        _log_winner(state, found, conf)
    spec = training_spec(
        conf,
        paths=state.paths,
        dataset_uri=result_of(context, TaskId.SHARD)["dataset_uri"],
        role=state.role,
        task_id=context["ti"].task_id,
        budget_usd=training_budget_usd(state.conf, searched_usd=found.paid_usd if found else None),
        max_cost_usd=left,
        measures_test_split=True,
    )
    return with_judge(spec, conf)


def _trained(context: Context) -> tuple[RunConf, TuningResult | None]:
    """Return the conf with the best trial's hyperparameters, and the result of the search.

    Without a search, the conf is the run's own, and the result is None. In the returned conf, `tune`
    is always False. Callers therefore calculate budgets from the run's own conf, which has the search.
    """
    conf = RunState.of(context).conf
    if not conf.tune:
        return conf, None
    found = TuningResult.from_dict(result_of(context, TaskId.TUNE))
    return with_values(conf, found.best.tuned_values), found


def watch_task_plan(context: Context, jinja_env: object) -> dict[str, Any] | None:
    """Return the plan for the evaluation of rules during the training, as `WatchPlan.to_dict()`.

    The result is None if the training is not watched.
    """
    conf = RunState.of(context).conf
    return watch_plan(conf, on_stop=conf.on_rule_stop)


def _log_winner(state: RunState[RunConf], found: TuningResult, conf: RunConf) -> None:
    """Log the best trial, and the origin of each hyperparameter of the training."""
    best = found.best
    log.info(
        "The search %s chose trial %s: %s %g%s",
        found.tuning_job_name,
        best.training_job_name,
        found.objective.metric_name,
        best.value,
        "" if found.is_complete else f" (the best so far: {found.ended_by} ended it)",
    )
    sent = training_hyperparameters(conf)
    for each in provenance(sent, conf=state.conf, tuned=best.tuned_values):
        log.info("hyperparameter %s", each)


def evaluate_task_spec(
    context: Context, jinja_env: object
) -> ProcessingJobSpec | LastStepEvaluation | None:
    """Return the evaluation of the model on the test split.

    It is a processing job, or a `LastStepEvaluation` if the training job evaluates the model as its last step.
    It is None if the DAG's author replaced the evaluation or left it out.
    """
    state, training = RunState.of(context), result_of(context, TaskId.TRAIN)
    conf, _ = _trained(context)
    planned = state.plan.get("evaluation") or {}
    fallback = None
    if planned.get("may_fall_back", True):
        from trainyard.planning.run_cost import (
            evaluation_fallback,  # a DAG file imports this module
        )

        fallback = evaluation_fallback(
            state.conf,
            trained=conf,
            trained_on=training.get("instance_type"),
            job_attempts=JOB_RETRIES + 1,
        )
    return evaluation_spec(
        conf,
        paths=state.paths,
        dataset_uri=result_of(context, TaskId.SHARD)["dataset_uri"],
        training=training,
        role=state.role,
        fallback=fallback,
        max_cost_usd=cap_left_usd(context, state),
    )


def register_task_version(context: Context, jinja_env: object) -> ModelVersion:
    """Return the model version of the run, with its lineage and the image that serves it."""
    state = RunState.of(context)
    training, dataset = result_of(context, TaskId.TRAIN), result_of(context, TaskId.SHARD)
    conf, found = _trained(context)
    serving = run_serving(conf, region=state.region, trained_on=training["instance_type"])
    evaluation = evaluation_result(context) or {}
    return ModelVersion(
        **(asdict(serving) if serving else {}),
        group=state.conf.model_package_group,
        model_artifact=training["model_artifact"],
        source=training["job_name"],
        approval_status=state.conf.approval_status,
        metrics_s3_uri=evaluation.get("evaluation_uri"),
        model_card=_card(context, conf, training, dataset),
        lineage={
            **_lineage(context, conf, training, dataset),
            **_search_lineage(found),
            **{f"metric.{name}": value for name, value in training["final_metrics"].items()},
        },
    )


def _card(
    context: Context, conf: RunConf, training: dict[str, Any], dataset: dict[str, Any]
) -> ModelCard:
    state = RunState.of(context)
    sources = [each.source for each in conf.data_mixture.values()] or [conf.source]
    evaluation = evaluation_result(context)
    return run_card(
        state,
        training,
        problem=f"{conf.model}: column {conf.target_column} of a table"
        if conf.target_column
        else f"{conf.model}: next token of a text",
        datasets=[*sources, dataset["dataset_uri"]],
        hyperparameters=training_hyperparameters(conf),
        observations=data_observations(dataset),
        evaluation=evaluation,
        evaluation_datasets=[f"{dataset['dataset_uri']}/test/"] if evaluation else [],
    )


def _lineage(
    context: Context, conf: RunConf, training: dict[str, Any], dataset: dict[str, Any]
) -> dict[str, Any]:
    state, evaluation = RunState.of(context), evaluation_result(context) or {}
    from trainyard.planning.evaluation_plan import plan_evaluation  # a DAG file imports this module

    planned = plan_evaluation(conf, trained_on=training["instance_type"])
    return {
        **training_lineage(training, paths=state.paths),
        "dataset_uri": dataset["dataset_uri"],
        "data_fingerprint": dataset.get("fingerprint"),
        **({"init_from": state.conf.init_from} if state.conf.init_from else {}),
        "evaluation_max_samples": planned.max_samples,
        "evaluation_job": evaluation.get("job_name") or evaluation.get("measured_by"),
    }


def _search_lineage(found: TuningResult | None) -> dict[str, Any]:
    """Return the search and the hyperparameters that it chose; empty without a search."""
    if found is None:
        return {}
    tuned = {f"tuned.{name}": value for name, value in found.best.tuned_hyperparameters.items()}
    return {"tuning_job": found.tuning_job_name, **tuned}
