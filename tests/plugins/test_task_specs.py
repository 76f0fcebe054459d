"""The tasks of a run work on what its conf says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow
from tests.runs.sample_search import sample_result
from trainyard.planning.evaluation_plan import plan_evaluation
from trainyard.planning.run_plan import plan_run
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard.sagemaker_api.tuning_request import render_tuning_job
from trainyard.specs.run_conf import RunConf
from trainyard_airflow.tasks.end_to_end.jobs import LastStepEvaluation
from trainyard_airflow.tasks.end_to_end.params import FORM
from trainyard_airflow.tasks.end_to_end.task_specs import (
    evaluate_task_spec,
    register_task_version,
    shard_task_spec,
    smoke_task_spec,
    train_task_spec,
    tune_task_spec,
)
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.run_state import RunState

ROLE = "arn:aws:iam::123456789012:role/Trainer"


def context(**params: Any) -> Any:
    """Return the context of a task of a run with these params."""
    plan = plan_run(params)
    paths = RunPaths(bucket="b", prefix="p", dag_id="d", run_id="r")
    state = RunState(
        conf=RunConf.from_mapping(params),
        paths=paths,
        role=ROLE,
        region="us-east-1",
        plan=plan.to_dict(),
    )
    results = {
        "preflight": state.to_dict(),
        "shard": {"dataset_uri": "s3://b/datasets/x"},
        "train": {"model_artifact": "s3://b/model.tar.gz", "image_uri": "image"},
        "tune": sample_result().to_dict(),
    }
    ti = SimpleNamespace(task_id="train", xcom_pull=lambda task_ids: results[task_ids])
    return {"ti": ti}


def test_shards_fit_the_loader_workers_and_columns_of_the_conf() -> None:
    conf = {
        "model": "mlp",
        "target_column": "y",
        "ignore_columns": ["id"],
        "category_columns": ["zip"],
        "csv_options": {"sep": ";"},
        "hyperparameters": {"num_workers": 2},
        "checksums": False,
    }
    settings = shard_task_spec(context(**conf), None).settings

    assert settings.num_workers == 2
    assert not settings.checksums
    assert settings.num_readers == 4
    assert (settings.ignore_columns, settings.category_columns) == (("id",), ("zip",))
    assert settings.csv_options == {"sep": ";"}


def test_evaluation_of_a_type_for_training_alone_runs_on_a_type_of_processing_jobs() -> None:
    spec = evaluate_task_spec(
        context(instance_type="ml.p4d.24xlarge", processes_per_instance=8, global_batch_size=128),
        None,
    )

    assert spec.instance_type == "ml.m5.xlarge"


@pytest.mark.parametrize(
    ("conf", "processes"),
    [
        ({"instance_type": "ml.p4d.24xlarge", "global_batch_size": 128}, 8),
        (
            {
                "instance_type": "ml.p4d.24xlarge",
                "processes_per_instance": 2,
                "global_batch_size": 32,
            },
            2,
        ),
        ({"instance_type": "ml.m5.large"}, 1),
        ({"capacity_ladder": [{"instance_type": "ml.g5.48xlarge"}], "global_batch_size": 128}, 8),
    ],
)
def test_an_instance_has_a_rank_for_each_accelerator_unless_the_conf_says_otherwise(
    conf: dict[str, Any], processes: int
) -> None:
    spec = train_task_spec(context(**conf), None)

    assert spec.distribution["torch_distributed"]["processes_per_host"] == processes
    assert shard_task_spec(context(**conf), None).settings.processes_per_instance == processes


def test_rungs_with_different_accelerators_leave_the_ranks_to_the_toolkit() -> None:
    ladder = [
        {"instance_type": "ml.g5.12xlarge", "instance_count": 1},
        {"instance_type": "ml.g5.xlarge", "instance_count": 4},
    ]

    spec = train_task_spec(context(capacity_ladder=ladder, global_batch_size=32), None)

    assert spec.distribution == {"torch_distributed": {"enabled": True}}


@pytest.mark.parametrize("instance_type", ["ml.m5.large", "ml.g5.xlarge", "ml.g4dn.xlarge"])
def test_open_arithmetic_is_left_to_the_accelerator(instance_type: str) -> None:
    sent = train_task_spec(context(instance_type=instance_type), None).hyperparameters

    assert sent["precision"] == "auto"
    assert "compile" not in sent


def test_named_arithmetic_is_sent() -> None:
    conf = {"precision": "fp32", "hyperparameters": {"compile": False}}
    sent = train_task_spec(context(instance_type="ml.g5.xlarge", **conf), None).hyperparameters

    assert (sent["precision"], sent["compile"]) == ("fp32", False)


@pytest.mark.parametrize("task", [train_task_spec, tune_task_spec])
def test_rungs_with_and_without_bf16_have_one_arithmetic(task: Any) -> None:
    ladder = [{"instance_type": "ml.g5.xlarge"}, {"instance_type": "ml.g4dn.xlarge"}]
    conf = {"capacity_ladder": ladder, "tune": task is tune_task_spec}
    spec = task(context(**conf), None)
    sent = spec.hyperparameters if task is train_task_spec else spec.training.hyperparameters

    assert (sent["precision"], sent["compile"]) == ("fp32", False)


def test_training_climbs_the_ladder_of_the_conf_within_its_budget() -> None:
    ladder = [
        {"instance_type": "ml.m5.large", "max_wait_s": 600},
        {"instance_type": "ml.m5.large", "use_spot_instances": False},
    ]
    spec = train_task_spec(
        context(capacity_ladder=ladder, heartbeat_timeout_s=90, budget_usd=2.0), None
    )

    assert [str(each) for each in spec.capacity_ladder] == [
        "ml.m5.large spot",
        "ml.m5.large on demand",
    ]
    assert (spec.instance_type, spec.instance_count, spec.heartbeat_timeout_s) == (None, 2, 90)
    assert spec.budget_usd == pytest.approx(2.0 - 0.115)


@pytest.mark.parametrize(
    ("attempts", "strategy"), [(2, {"MaximumRetryAttempts": 2}), (0, None)], ids=["2", "0"]
)
def test_the_service_restarts_the_training_as_often_as_the_conf_says(
    attempts: int, strategy: Any
) -> None:
    spec = train_task_spec(
        context(max_retry_attempts=attempts, image_uri="registry.example/image:1"), None
    )
    request = render_training_job(
        spec, name="job", region="us-east-1", code_s3_uri="s3://b/c.tar.gz"
    )

    assert request.get("RetryStrategy") == strategy


@pytest.mark.parametrize(
    ("conf", "restarts"),
    [
        ({"instance_count": 1}, {"PET_MAX_RESTARTS": "3"}),
        ({"instance_count": 2}, {}),
        ({"capacity_ladder": [{"instance_type": "ml.m5.large", "instance_count": 2}]}, {}),
    ],
    ids=["one host", "two hosts", "two on a tier"],
)
def test_torchrun_restarts_ranks_on_one_host_only(
    conf: dict[str, Any], restarts: dict[str, str]
) -> None:
    spec = train_task_spec(context(**conf), None)

    assert dict(spec.environment) == restarts


def test_training_without_a_ladder_runs_on_the_confs_own_instances() -> None:
    spec = train_task_spec(context(use_spot_instances=True), None)

    assert (spec.capacity_ladder, spec.instance_type) == ((), "ml.m5.large")
    assert (spec.use_spot_instances, spec.max_wait) == (True, 7200)
    assert (spec.max_retry_attempts, spec.max_quota_wait_s) == (3, 24 * 3600)
    assert spec.hyperparameters["checkpoint_interval"] == 0
    assert spec.hyperparameters["mean_time_to_interruption_s"] == 3600.0


def test_a_trial_is_the_training_in_short_without_what_is_searched() -> None:
    spec = tune_task_spec(context(tune=True, budget_usd=9, tuning_instance_count=1, seed=7), None)

    trial = spec.training
    assert (trial.hyperparameters["max_steps"], trial.hyperparameters["eval_interval"]) == (100, 20)
    assert not set(spec.ranges) & set(trial.hyperparameters)
    assert (trial.instance_count, trial.instance_type, trial.max_run) == (1, "ml.m5.large", 3600)
    assert (trial.checkpoint_s3_uri, trial.hyperparameters["checkpoint_interval"]) == (None, -1)
    assert (spec.max_jobs, spec.max_parallel_jobs, spec.random_seed) == (12, 2, 7)
    assert spec.budget_usd == pytest.approx(4.5)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"use_spot_instances": True, "max_wait_s": 7200},
        {"capacity_ladder": [{"instance_type": "ml.m5.xlarge"}], "tuning_instance_count": 1},
        {"tuning_strategy": "Random", "tuning_max_time_s": 600, "seed": 2**40},
        {"tuning_strategy": "Hyperband", "max_steps": 33, "warmup_steps": 3},
        {"tuning_strategy": "Grid", "tuning_ranges": {"learning_rate": [1e-3, 2e-3]}},
        {
            "tuning_objective": "train:tokens_per_second",
            "tuning_ranges": {"micro_batch_size": [4, 8]},
            "tuning_max_jobs": 2,
        },
        {"model": "mlp", "target_column": "y", "data_format": "csv"},
    ],
    ids=["defaults", "spot", "ladder", "random", "hyperband", "grid", "speed", "mlp"],
)
def test_every_search_of_a_conf_is_one_that_the_service_takes(params: dict[str, Any]) -> None:
    spec = tune_task_spec(context(tune=True, **params), None)

    request = render_tuning_job(
        spec, name="search", region="us-east-1", code_s3_uri="s3://b/code.tar.gz", image_uri="image"
    )
    assert request["HyperParameterTuningJobConfig"]["Strategy"] == spec.strategy


def test_trials_on_spot_capacity_keep_checkpoints_below_the_search() -> None:
    trial = tune_task_spec(context(tune=True, use_spot_instances=True), None).training

    assert (trial.use_spot_instances, trial.max_wait) == (True, 7200)
    assert trial.checkpoint_s3_uri == "s3://b/p/runs/d/r/tuning/checkpoints"
    assert trial.hyperparameters["checkpoint_interval"] == 0


def test_training_takes_the_winners_hyperparameters_and_says_so(caplog) -> None:
    caplog.set_level("INFO")

    spec = train_task_spec(
        context(tune=True, max_steps=200, budget_usd=9, hyperparameters={"clip_norm": 0.5}), None
    )

    sent = spec.hyperparameters
    assert (sent["learning_rate"], sent["weight_decay"]) == (0.0021, 0.046)
    assert (sent["max_steps"], sent["eval_interval"], sent["clip_norm"]) == (200, 50, 0.5)
    assert "hyperparameter learning_rate 0.0021 (tuned; else 0.004)" in caplog.text
    assert "hyperparameter weight_decay 0.046 (tuned)" in caplog.text
    assert "hyperparameter max_steps 200 (conf)" in caplog.text
    assert "hyperparameter num_layers 4 (default)" in caplog.text


def test_training_may_spend_what_the_search_left_of_the_budget() -> None:
    spec = train_task_spec(context(tune=True, budget_usd=9), None)

    assert spec.budget_usd == pytest.approx(9 - 0.0442 - 0.115)


def test_training_may_not_spend_what_a_cleared_search_has_cost() -> None:
    run = context(tune=True, budget_usd=9)
    found = replace(sample_result(), earlier_cost_usd=2.0).to_dict()
    pull = run["ti"].xcom_pull
    run["ti"].xcom_pull = lambda task_ids: found if task_ids == "tune" else pull(task_ids)

    assert train_task_spec(run, None).budget_usd == pytest.approx(9 - 2 - 0.0442 - 0.115)


def test_training_without_a_search_asks_for_no_winner() -> None:
    assert train_task_spec(context(), None).hyperparameters["learning_rate"] == 4e-3


def test_a_model_too_large_for_one_accelerator_is_evaluated_in_shards_under_torchrun() -> None:
    spec = evaluate_task_spec(
        context(
            instance_type="ml.p4d.24xlarge",
            instance_count=8,
            processes_per_instance=8,
            strategy="fsdp",
            num_layers=40,
            hidden_size=5120,
            num_heads=40,
            precision="bf16",
            global_batch_size=64,
            micro_batch_size=1,
            max_run_s=864_000,
        ),
        None,
    )

    launcher = ("python3", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4")
    assert spec.command == launcher
    assert "--layout=shards" in spec.arguments
    assert spec.max_run <= 777_600
    assert spec.volume_size > 90


def test_sharding_jobs_keep_the_limit_of_processing_jobs() -> None:
    spec = shard_task_spec(
        context(max_run_s=864_000, source="s3://b/raw/", shard_instance_count=2), None
    )

    assert spec.job is not None
    assert spec.job.max_run == 777_600


def test_a_training_that_is_to_measure_gets_the_test_split_and_its_trials_do_not() -> None:
    own = context(evaluation_place="training", tune=False)
    spec = train_task_spec(own, None)

    assert "test" in spec.inputs
    assert int(spec.hyperparameters["test_samples"]) > 0
    trial = tune_task_spec(context(evaluation_place="training", tune=True), None).training
    assert "test" not in trial.inputs
    assert "test_samples" not in trial.hyperparameters
    assert "test" not in train_task_spec(context(), None).inputs


def test_the_form_offers_the_precision_of_the_accelerator_first() -> None:
    param = FORM.params()["precision"]

    assert param.value == param.schema["enum"][0] == "auto"


def last_step(**params: Any) -> LastStepEvaluation:
    spec = evaluate_task_spec(last_step_context(**params), None)
    assert isinstance(spec, LastStepEvaluation)
    return spec


def last_step_context(**params: Any) -> Any:
    found = context(**{"evaluation_place": "training", **params})
    found["ti"].xcom_pull("train")["job_name"] = "train-1"
    return found


def test_a_processing_job_is_ready_where_a_stopped_training_may_measure_nothing() -> None:
    fallback = last_step().fallback

    assert fallback is not None
    assert fallback.instance_type == "ml.m5.large"
    assert fallback.entry_point == "evaluate.py"


def of_winner(**tuned: int) -> Any:
    """Return the context of a run whose search chose these hyperparameters."""
    ranges = {name: [getattr(RunConf(), name), value] for name, value in tuned.items()}
    run = last_step_context(
        evaluation_place="auto", tune=True, tuning_ranges=ranges, tuning_max_jobs=2
    )
    texts = {name: str(value) for name, value in tuned.items()}
    best = replace(sample_result().best, tuned_hyperparameters=texts)
    pull, found = run["ti"].xcom_pull, replace(sample_result(), best=best).to_dict()
    run["ti"].xcom_pull = lambda task_ids: found if task_ids == "tune" else pull(task_ids)
    return run


def test_the_evaluation_is_planned_for_the_model_that_the_search_chose() -> None:
    small, large = (evaluate_task_spec(of_winner(hidden_size=size), None) for size in (256, 8192))

    assert small.instance_type == "ml.m5.large"
    assert large.instance_type == plan_evaluation(RunConf(hidden_size=8192)).instance_type
    assert large.instance_type != small.instance_type
    assert large.volume_size >= small.volume_size


def test_training_and_evaluation_agree_on_the_place_for_the_model_that_the_search_chose() -> None:
    run = of_winner(hidden_size=2**17)

    assert "test" in train_task_spec(run, None).inputs
    assert isinstance(evaluate_task_spec(run, None), LastStepEvaluation)


def test_no_processing_job_is_ready_beyond_the_budget_or_the_quotas() -> None:
    cost = plan_run({"evaluation_place": "training"}, job_attempts=4).ceiling_usd
    refused = last_step_context()
    refused["ti"].xcom_pull("preflight")["plan"]["evaluation"]["may_fall_back"] = False

    assert last_step(budget_usd=cost).fallback is None
    assert evaluate_task_spec(refused, None).fallback is None


def test_ranks_of_an_evaluation_wait_as_long_as_its_job_may_run() -> None:
    spec = evaluate_task_spec(context(evaluation_max_run_s=50_000), None)

    assert "--timeout-s=50000" in spec.arguments


@pytest.mark.parametrize("spec_of", [train_task_spec, smoke_task_spec], ids=["train", "smoke"])
def test_initial_weights_are_a_channel_of_every_training(spec_of: Any) -> None:
    run = context(init_from="s3://b/llama/", smoke_hyperparameters={"max_steps": 2})

    assert spec_of(run, None).inputs["init"].s3_data == "s3://b/llama/"


def test_initial_weights_are_a_channel_of_every_trial() -> None:
    spec = tune_task_spec(context(init_from="s3://b/llama/", tune=True), None)

    assert spec.training.inputs["init"].s3_data == "s3://b/llama/"


def test_the_model_version_says_how_many_samples_were_measured_at_most() -> None:
    run = context(evaluation_max_samples=500, init_from="s3://b/llama/")
    pull = run["ti"].xcom_pull
    more = {
        "train": {
            **pull("train"),
            "job_name": "t",
            "attempt": 1,
            "final_metrics": {},
            "instance_type": "ml.m5.large",
        },
        "shard": {**pull("shard"), "fingerprint": "f"},
        "evaluate": {"job_name": "e"},
    }
    run["ti"] = SimpleNamespace(
        dag_id="d", run_id="r", xcom_pull=lambda task_ids: more.get(task_ids) or pull(task_ids)
    )

    version = register_task_version(run, None)
    assert version.lineage["evaluation_max_samples"] == 500
    assert version.lineage["init_from"] == "s3://b/llama/"
    assert "/pytorch-inference:" in (version.image_uri or "")
    assert "ml.m5.large" in version.instance_types


MIXTURE = {
    "web": {"source": "s3://b/web/", "weight": 3},
    "code": {
        "source": "s3://b/code/",
        "weight": 1,
        "text_column": "content",
        "csv_options": {"sep": "\t"},
    },
}


def test_the_sources_of_a_mixture_are_sharded_with_the_runs_settings_and_their_own_columns() -> (
    None
):
    told = context(
        data_mixture=MIXTURE,
        shard_instance_count=2,
        validation_fraction=0.1,
        csv_options={"sep": ";"},
    )

    spec = shard_task_spec(told, None)

    assert spec.parts == {"code": 1, "web": 3}
    settings = {name: each.settings for name, each in spec.datasets.items()}
    assert {
        name: (spec.datasets[name].source.uri, each.text_column, each.validation_fraction)
        for name, each in settings.items()
    } == {
        "code": ("s3://b/code/", "content", 0.1),
        "web": ("s3://b/web/", None, 0.1),
    }
    assert [settings[name].csv_options["sep"] for name in ("code", "web")] == ["\t", ";"]
    assert spec.job.instance_count == 2
    assert {each.job for each in spec.datasets.values()} == {None}


def test_the_splits_of_a_mixture_are_channels_with_manifests() -> None:
    told = context(data_mixture=MIXTURE)

    training = render_training_job(
        replace(train_task_spec(told, None), image_uri="registry.example/image:1"),
        name="job",
        region="us-east-1",
        code_s3_uri="s3://b/c.tar.gz",
    )
    evaluation = evaluate_task_spec(told, None)

    found = {
        each["ChannelName"]: each["DataSource"]["S3DataSource"]
        for each in training["InputDataConfig"]
    }
    kinds = {name: (each["S3DataType"], each["S3Uri"]) for name, each in found.items()}
    assert kinds == {
        "train": ("ManifestFile", "s3://b/datasets/x/train.manifest"),
        "validation": ("ManifestFile", "s3://b/datasets/x/validation.manifest"),
        "index": ("S3Prefix", "s3://b/datasets/x/index/"),
    }
    inputs = {each.input_name: (each.s3_data_type, each.source) for each in evaluation.inputs}
    assert inputs["test"] == ("ManifestFile", "s3://b/datasets/x/test.manifest")
    assert inputs["index"] == ("S3Prefix", "s3://b/datasets/x/index/")
