"""Specs of an end-to-end run's jobs, from the run's conf and the results of earlier tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainyard.catalog.hardware import has_bf16
from trainyard.catalog.instances import catalogue, first_accelerated
from trainyard.errors import ContractError
from trainyard.installation import SHIPPED
from trainyard.specs.channel import TrainingInput
from trainyard.specs.metrics import TRAINYARD_METRICS
from trainyard.specs.processing_job import ProcessingInput, ProcessingJobSpec, ProcessingOutput
from trainyard.specs.run_conf import HYPERPARAMETERS
from trainyard.specs.run_conf_tuning import EVALUATIONS_OF_A_TRIAL, search_of, with_values
from trainyard.specs.service_debugger import Debugger
from trainyard.specs.strategies.torch_distributed import RANK_RESTARTS
from trainyard.specs.training_job import TrainingJobSpec
from trainyard.specs.tuning_job import HyperbandResources, SearchStrategy, TuningJobSpec
from trainyard.task_ids import TaskId
from trainyard_airflow.tasks.shared.cluster import training_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.planning.evaluation_plan import EvaluationPlan
    from trainyard.specs.base_run_conf import BaseRunConf
    from trainyard.specs.run_conf import RunConf
    from trainyard.specs.run_conf_tuning import SearchSettings
    from trainyard.tuning.ask_tell import TrialTraining
    from trainyard_airflow.tasks.shared.run_paths import RunPaths

TRAINING_ENTRY_POINTS = {"ddp": "train_ddp.py", "fsdp": "train_fsdp.py"}
"""The script of each strategy."""
INIT_CHANNEL = "init"
"""Channel of the initial weights, as in the training scripts."""
INDEX = "index"
"""Channel of the data set's index."""
MANIFEST = "ManifestFile"
EVALUATION_ENTRY_POINT = "evaluate.py"
EVALUATION_FILE = "evaluation.json"

_INPUT = "/opt/ml/processing/input"
_OUTPUT = "/opt/ml/processing/output"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStepEvaluation:
    """An evaluation by a training job as its last step.

    Attributes:
        job_name: name of the training job.
        model_artifact: S3 URI of its model; evaluation.json is in the output.tar.gz beside it.
        destination: S3 URI to which evaluation.json is copied.
        reason: why the evaluation is not a processing job.
        fallback: processing job for a training that ended before its evaluation; None if there can be none.
    """

    job_name: str
    model_artifact: str
    destination: str
    reason: str
    fallback: ProcessingJobSpec | None = None


def training_hyperparameters(conf: RunConf) -> dict[str, Any]:
    """Return the hyperparameters of the conf's training job."""
    hyperparameters: dict[str, Any] = {name: getattr(conf, name) for name in HYPERPARAMETERS}
    hyperparameters["warmup_steps"] = conf.num_warmup_steps
    if conf.target_column:
        hyperparameters["target_column"] = conf.target_column
    return {**hyperparameters, **conf.hyperparameters, **_arithmetic_of_rungs(conf)}


def _arithmetic_of_rungs(conf: RunConf) -> dict[str, Any]:
    """Return `precision` and `compile` as hyperparameters if only some of the run's instance types support bf16.

    All attempts then train with the same values, those of the conf. Otherwise the result is empty, and the script
    chooses the defaults for the accelerator on which it runs.
    """
    if len({has_bf16(each.instance_type) for each in conf.rungs}) == 1:
        return {}
    return {"precision": conf.training_precision, "compile": conf.is_compiled}


def training_spec(
    conf: RunConf,
    *,
    paths: RunPaths,
    dataset_uri: str,
    role: str,
    task_id: str,
    budget_usd: float | None = None,
    max_cost_usd: float | None = None,
    measures_test_split: bool = False,
) -> TrainingJobSpec:
    """Return the training job of a run on the sharded data set at `dataset_uri`.

    Args:
        conf: the run's conf.
        paths: S3 prefixes of the run.
        dataset_uri: S3 prefix of the sharded data set.
        role: ARN of the execution role.
        task_id: id of the task, part of the prefix of its checkpoints.
        budget_usd: limit for the cost of all attempts; None = no limit.
        max_cost_usd: rest of the run's cost cap for all attempts; None = no cap.
        measures_test_split: True = the job evaluates the test split as its last step, if `plan_evaluation`
            chooses the training job for the evaluation; False = never.
    """
    hyperparameters = training_hyperparameters(conf)
    splits = ["train", "validation", INDEX]
    from trainyard.planning.evaluation_plan import (
        Place,
        plan_evaluation,
    )  # a DAG file imports this module

    plan = plan_evaluation(conf) if measures_test_split else None
    if plan and plan.place is Place.TRAINING:
        hyperparameters["test_samples"] = plan.max_samples
        splits.append("test")
    return TrainingJobSpec(
        role=role,
        output_path=paths.output,
        image_uri=conf.image_uri,
        forward_sigterm=True,
        entry_point=TRAINING_ENTRY_POINTS[conf.strategy],
        source_dir=SHIPPED,
        code_location=paths.code,
        hyperparameters=hyperparameters,
        distribution={"torch_distributed": {"enabled": True, **_processes(conf)}},
        environment=_rank_restarts(conf, task_id),
        **training_cluster(conf),
        budget_usd=budget_usd,
        max_cost_usd=max_cost_usd,
        inputs={
            **{name: _channel(conf, dataset_uri, name) for name in splits},
            **({INIT_CHANNEL: conf.init_from} if conf.init_from else {}),
        },
        checkpoint_s3_uri=paths.checkpoints(task_id),
        metric_definitions=TRAINYARD_METRICS,
    )


def _channel(conf: RunConf, dataset_uri: str, name: str) -> str | TrainingInput:
    """Return the training job's input for `name`, which is a split of the data set, or the data set's index.

    The input is an S3 prefix. If the data set is a mixture, the input for a split is a manifest that lists the shards
    of all sources.
    """
    if not conf.data_mixture or name == INDEX:
        return f"{dataset_uri}/{name}/"
    from trainyard.sharding.mixture import manifest_uri  # a DAG file imports this module

    return TrainingInput(s3_data=manifest_uri(dataset_uri, name), s3_data_type=MANIFEST)


def _rank_restarts(conf: RunConf, task_id: str) -> Mapping[str, str]:
    """Return the environment variables that make torchrun restart killed ranks.

    The result is empty for tasks other than `train`, and for several hosts. With several hosts, the torchrun of the
    other hosts would not restart their ranks, and all would wait (docs/adr/0074).
    """
    counts = [each.instance_count or conf.instance_count for each in conf.rungs]
    return RANK_RESTARTS if task_id == TaskId.TRAIN and max(counts) == 1 else {}


def _processes(conf: RunConf) -> dict[str, int]:
    return (
        {} if conf.processes_per_host is None else {"processes_per_host": conf.processes_per_host}
    )


def with_judge(spec: TrainingJobSpec, conf: BaseRunConf) -> TrainingJobSpec:
    """Return the training, with the rules for SageMaker Debugger if the conf's `debugger` is "service".

    Raises:
        SpecError: a rule of the conf is invalid.
    """
    if conf.debugger != Debugger.SERVICE:
        return spec
    from trainyard.rules.service_rules import service_rules

    rules = service_rules(conf.rules)
    return replace(
        spec, debugger=conf.debugger, rules=rules.debugger, profiler_rules=rules.profiler
    )


def tuning_spec(conf: RunConf, *, paths: RunPaths, dataset_uri: str, role: str) -> TuningJobSpec:
    """Return the search of a run: its training with the steps of a trial, and the ranges of the hyperparameters.

    A trial is evaluated a few times, because poor trials can then be stopped early. It stores checkpoints only on spot
    capacity.

    Raises:
        ContractError: the conf has no search.
    """
    search = _requested_search(conf, of="the tuning job of a run")
    trial = training_spec(
        with_values(conf, _in_short(conf, search, num_steps=search.num_steps)),
        paths=paths,
        dataset_uri=dataset_uri,
        role=role,
        task_id=TaskId.TUNE,
    )
    static = {name: v for name, v in trial.hyperparameters.items() if name not in search.ranges}
    evaluations = -(-search.num_steps // search.eval_interval)
    is_hyperband = search.strategy is SearchStrategy.HYPERBAND
    return TuningJobSpec(
        training=replace(
            trial,
            hyperparameters=static,
            output_path=f"{paths.tuning}/output",
            checkpoint_s3_uri=f"{paths.tuning}/checkpoints" if conf.use_spot_instances else None,
            forward_sigterm=False,
            keep_alive_period_in_seconds=None,  # the service itself reuses instances for trials
        ),
        hyperparameter_ranges=search.ranges,
        objective_metric_name=search.metric_name,
        objective_type=search.objective_type,
        strategy=search.strategy,
        max_jobs=None if search.strategy is SearchStrategy.GRID else search.max_jobs,
        max_parallel_jobs=search.max_parallel_jobs,
        max_runtime_s=search.max_time_s,
        early_stopping_type=search.early_stopping,
        random_seed=conf.seed % 2**31,
        hyperband=HyperbandResources(max_resource=evaluations) if is_hyperband else None,
        budget_usd=search.budget_usd,
        max_cost_usd=search.max_cost_usd,
        stop_reserve_s=conf.stop_reserve_s,
    )


def trial_training_spec(
    conf: RunConf,
    *,
    paths: RunPaths,
    dataset_uri: str,
    role: str,
    trial_id: str,
    asked: TrialTraining,
) -> TrainingJobSpec:
    """Return the training job of one trial of a search in rounds (`tune_mapped`).

    Args:
        conf: the run's conf.
        paths: S3 prefixes of the run.
        dataset_uri: S3 prefix of the sharded data set.
        role: ARN of the execution role.
        trial_id: id of the trial, unique in the run; part of the prefix of its checkpoints.
        asked: steps, hyperparameters and budget of the trial, which the search chose.

    Raises:
        ContractError: the conf has no search.
    """
    search = _requested_search(conf, of="a trial")
    short = {**_in_short(conf, search, num_steps=asked.num_steps), **asked.values}
    trial = training_spec(
        with_values(conf, short),
        paths=paths,
        dataset_uri=dataset_uri,
        role=role,
        task_id="tune",
        budget_usd=asked.budget_usd,
    )
    spot = f"{paths.tuning}/checkpoints/{trial_id}" if conf.use_spot_instances else None
    return replace(trial, output_path=f"{paths.tuning}/output", checkpoint_s3_uri=spot)


def _requested_search(conf: RunConf, *, of: str) -> SearchSettings:
    """Return the settings of the run's search; `of` is the requested job, for the error.

    Raises:
        ContractError: the conf has no search.
    """
    search = search_of(conf)
    if search is None:
        raise ContractError(
            f"{of} was requested, but the run's conf has no search",
            where="tune",
            got="false",
            allowed="true",
            next_step="set tune to true in the run's conf, or omit the tasks of the search",
        )
    return search


def _in_short(conf: RunConf, search: SearchSettings, *, num_steps: int) -> dict[str, Any]:
    """Return the conf values in which a trial of `num_steps` steps differs from the training, by field name."""
    return {
        "max_steps": num_steps,
        "eval_interval": max(1, num_steps // EVALUATIONS_OF_A_TRIAL),
        "checkpoint_interval": conf.checkpoint_interval if conf.use_spot_instances else -1,
        "early_stopping_patience": 0,
        "max_run_s": search.max_run_s,
        "max_wait_s": None,
        "instance_count": search.instance_count,
        "capacity_ladder": (),
        "warmup_steps": min(conf.num_warmup_steps, num_steps - 1),
        **_arithmetic_of_rungs(conf),
    }


def evaluation_spec(
    conf: RunConf,
    *,
    paths: RunPaths,
    dataset_uri: str,
    training: Mapping[str, Any],
    role: str,
    fallback: EvaluationPlan | None = None,
    max_cost_usd: float | None = None,
) -> ProcessingJobSpec | LastStepEvaluation | None:
    """Return the processing job that evaluates the model on the test split, or the training's own evaluation.

    None if the DAG's author replaced the evaluation or left it out.

    Args:
        conf: the run's conf.
        paths: S3 prefixes of the run.
        dataset_uri: S3 prefix of the sharded data set.
        training: the result of the training task.
        role: ARN of the execution role.
        fallback: plan of the processing job for a training without its own evaluation; None = no fallback.
        max_cost_usd: rest of the run's cost cap for the job; None = no cap.
    """

    def job(plan: EvaluationPlan) -> ProcessingJobSpec:
        measuring = _evaluation_job(
            conf, plan, paths=paths, dataset_uri=dataset_uri, training=training, role=role
        )
        return replace(measuring, max_cost_usd=max_cost_usd, stop_reserve_s=conf.stop_reserve_s)

    from trainyard.planning.evaluation_plan import (
        Place,
        plan_evaluation,
    )  # a DAG file imports this module

    plan = plan_evaluation(conf, trained_on=training.get("instance_type"))
    if plan.place is Place.NONE:
        return None
    if plan.place is Place.TRAINING:
        return LastStepEvaluation(
            job_name=str(training["job_name"]),
            model_artifact=str(training["model_artifact"]),
            destination=f"{paths.evaluation}/{EVALUATION_FILE}",
            reason=plan.reason,
            fallback=None if fallback is None else job(fallback),
        )
    return job(plan)


def _evaluation_job(
    conf: RunConf,
    plan: EvaluationPlan,
    *,
    paths: RunPaths,
    dataset_uri: str,
    training: Mapping[str, Any],
    role: str,
) -> ProcessingJobSpec:
    channels = {name: _channel(conf, dataset_uri, name) for name in ("test", INDEX)}
    inputs = {"model": str(training["model_artifact"]), **channels}
    return ProcessingJobSpec(
        role=role,
        instance_type=plan.instance_type,
        image_uri=evaluation_image(conf, training, plan.instance_type),
        command=_command(plan.num_processes),
        entry_point=EVALUATION_ENTRY_POINT,
        source_dir=SHIPPED,
        code_location=paths.code,
        arguments=(
            f"--max-samples={plan.max_samples}",
            f"--layout={'shards' if plan.is_sharded else 'whole'}",
            f"--timeout-s={plan.max_run_s}",
        ),
        inputs=tuple(_processing_input(name, each) for name, each in inputs.items()),
        outputs=(
            ProcessingOutput(
                source=f"{_OUTPUT}/evaluation",
                destination=paths.evaluation,
                output_name="evaluation",
            ),
        ),
        volume_size=plan.volume_size_gb,
        max_run=plan.max_run_s,
    )


def _processing_input(name: str, channel: str | TrainingInput) -> ProcessingInput:
    place = {"destination": f"{_INPUT}/{name}", "input_name": name}
    if isinstance(channel, str):
        return ProcessingInput(source=channel, **place)
    return ProcessingInput(source=channel.s3_data, s3_data_type=channel.s3_data_type, **place)


def _command(num_processes: int) -> tuple[str, ...]:
    """Return the command for the script: Python, or torchrun for several processes per instance."""
    if num_processes == 1:
        return ("python3",)
    launcher = ("-m", "torch.distributed.run", "--standalone")
    return ("python3", *launcher, f"--nproc-per-node={num_processes}")


def evaluation_image(
    conf: BaseRunConf, training: Mapping[str, Any], instance_type: str
) -> str | None:
    """Return the URI of the training's image for the evaluation, or None for the default of `instance_type`.

    An image that the conf names is always used. An image that Trainyard chose for the training is not used if only
    one of the two jobs, training and evaluation, runs on accelerators.
    """
    types = catalogue().types
    groups = training.get("instance_groups") or (training,)
    trained_on = types.get(
        first_accelerated([str(each.get("instance_type")) for each in groups]) or ""
    )
    kinds = {each.num_accelerators > 0 for each in (trained_on, types[instance_type]) if each}
    is_other = conf.image_uri is None and len(kinds) > 1
    return None if is_other else training.get("image_uri") or conf.image_uri
