"""Specs of an `autopilot_tabular` run's tasks. Airflow calls these functions when it renders templates."""
# ruff: noqa: ARG001  # Airflow hands each the context and its template environment

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.installation import SHIPPED
from trainyard.sagemaker_api.model_card import ModelCard
from trainyard.sagemaker_api.model_package import ModelVersion
from trainyard.specs.automl_conf import OWN, AutoMLConf
from trainyard.specs.automl_job import AutoMLJobSpec
from trainyard.specs.processing_job import ProcessingInput, ProcessingJobSpec, ProcessingOutput
from trainyard.task_ids import TaskId
from trainyard_airflow.tasks.shared.model_card import creator_of
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.run_state import result_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard_airflow.hooks.aws_clients import AwsClients

SOURCE_DIR = f"{SHIPPED}tabular"
EVALUATION_FILE = "evaluation.json"
SKLEARN_VERSION = "1.2-1"
_INPUT, _OUTPUT = "/opt/ml/processing/input", "/opt/ml/processing/output"


def prepare_spec(context: Context, jinja_env: object) -> ProcessingJobSpec:
    """Return the job that splits the table."""
    conf, paths, role = run_of(context)
    arguments = {
        "--target": conf.target,
        "--test-fraction": conf.test_fraction,
        "--validation-fraction": conf.validation_fraction,
        "--seed": conf.seed,
        **({} if conf.dataset == OWN else {"--dataset": conf.dataset}),
    }
    splits = ["train", "test", "facts", *(["validation"] if conf.validation_fraction else [])]
    return ProcessingJobSpec(
        role=role,
        instance_type=conf.instance_type,
        image_uri=conf.image_uri,
        framework="sklearn",
        framework_version=SKLEARN_VERSION,
        py_version="py3",
        entry_point="prepare_tabular.py",
        source_dir=SOURCE_DIR,
        arguments=tuple(str(part) for pair in arguments.items() for part in pair),
        inputs=_inputs({"source": conf.source} if conf.source else {}),
        outputs=_outputs({name: f"{data_uri(paths)}/{name}" for name in splits}),
        max_run=conf.max_run_s,
    )


def search_spec(context: Context, jinja_env: object) -> AutoMLJobSpec:
    """Return the AutoML job on the training rows."""
    conf, paths, role = run_of(context)
    data = result_of(context, TaskId.PREPARE)["outputs"]
    return AutoMLJobSpec(
        role=role,
        train=f"{data['train']}/",
        validation=f"{data['validation']}/" if conf.validation_fraction else None,
        target=conf.target,
        output_path=f"{paths.run}/automl",
        problem_type=conf.problem_type,
        objective=conf.objective,
        mode=conf.mode,
        algorithms=conf.algorithms,
        max_candidates=conf.max_candidates,
        max_runtime_s=conf.max_time_s,
        max_runtime_per_candidate_s=conf.max_time_per_candidate_s,
        budget_usd=conf.budget_usd,
    )


def evaluate_spec(context: Context, jinja_env: object) -> ProcessingJobSpec:
    """Return the job that evaluates the best candidate on the test rows."""
    conf, paths, role = run_of(context)
    data, found = result_of(context, TaskId.PREPARE)["outputs"], result_of(context, TaskId.SEARCH)
    environment = found["best"]["containers"][-1]["environment"]
    arguments = {
        "--target": conf.target,
        "--problem-type": found["problem_type"],
        "--program": environment.get("SAGEMAKER_PROGRAM", "inference.py"),
    }
    sources = {
        "model": found["model_artifact"],
        "train": f"{data['train']}/",
        "test": f"{data['test']}/",
    }
    return ProcessingJobSpec(
        role=role,
        instance_type=conf.instance_type,
        image_uri=found["image_uri"],
        entry_point="evaluate_tabular.py",
        source_dir=SOURCE_DIR,
        arguments=tuple(str(part) for pair in arguments.items() for part in pair),
        inputs=_inputs(sources),
        outputs=_outputs({"evaluation": paths.evaluation}),
        max_run=conf.max_run_s,
    )


def register_version(context: Context, jinja_env: object) -> ModelVersion:
    """Return the model version of the best candidate, with its lineage."""
    conf, paths, _ = run_of(context)
    ti, found = context["ti"], result_of(context, TaskId.SEARCH)
    best, evaluated = found["best"], result_of(context, TaskId.EVALUATE)
    return ModelVersion(
        group=conf.model_package_group,
        model_artifact=found["model_artifact"],
        image_uri=found["image_uri"],
        source=best["name"],
        approval_status=conf.approval_status,
        metrics_s3_uri=f"{paths.evaluation}/{EVALUATION_FILE}",
        model_card=_card(conf, paths, found, evaluated),
        lineage={
            "dag_id": ti.dag_id,
            "run_id": ti.run_id,
            "automl_job": found["automl_job_name"],
            "candidate": best["name"],
            "problem_type": found["problem_type"],
            f"metric.{found['objective']['metric_name']}": best["value"],
            "data_uri": data_uri(paths),
            "evaluation_job": evaluated["job_name"],
            "explainability": found["explainability_uri"],
        },
    )


def _card(
    conf: AutoMLConf, paths: RunPaths, found: dict[str, Any], evaluated: dict[str, Any]
) -> ModelCard:
    """Return the model card of the best candidate. The registration adds the metrics of the evaluation."""
    best, cost_usd = found["best"], found["cost_usd"]
    return ModelCard(
        creator=creator_of(paths),
        artifact=found["model_artifact"],
        intended_uses=conf.intended_uses,
        training_image=found["image_uri"],
        datasets=[f"{data_uri(paths)}/train/"],
        metrics={found["objective"]["metric_name"]: best["value"]},
        evaluation_job_arn=evaluated["arn"],
        evaluation_datasets=[f"{data_uri(paths)}/test/"],
        details={
            "problem": f"{found['problem_type']} of column {conf.target}",
            "report": paths.report_html,
            "automl_job": found["automl_job_name"],
            "candidate": best["name"],
            "explainability": found["explainability_uri"],
            "search_cost_usd": None if cost_usd is None else f"{cost_usd:.2f}",
        },
    )


def run_of(context: Context) -> tuple[AutoMLConf, RunPaths, str]:
    """Return the run's conf, its addresses and the execution role.

    Raises:
        SpecError: the params are wrong, or the connection names no bucket or role.
    """
    from trainyard_airflow.hooks.aws_clients import AwsClients

    conf = AutoMLConf.from_mapping(context["params"])
    task: Any = context["task"]
    clients = AwsClients(task.connection)
    return conf, paths_of(context, clients), clients.execution_role(conf.role)


def paths_of(context: Context, clients: AwsClients) -> RunPaths:
    """Return the run's addresses in S3, below the connection's bucket.

    Raises:
        SpecError: the connection names no bucket.
    """
    ti = context["ti"]
    return RunPaths(
        bucket=clients.bucket(),
        prefix="trainyard",
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        deployment=clients.deployment,
    )


def data_uri(paths: RunPaths) -> str:
    """Return the S3 prefix of a run's splits."""
    return f"{paths.run}/data"


def _inputs(sources: dict[str, Any]) -> tuple[ProcessingInput, ...]:
    return tuple(
        ProcessingInput(source=str(uri), destination=f"{_INPUT}/{name}", input_name=name)
        for name, uri in sources.items()
    )


def _outputs(places: dict[str, str]) -> tuple[ProcessingOutput, ...]:
    return tuple(
        ProcessingOutput(source=f"{_OUTPUT}/{name}", destination=uri, output_name=name)
        for name, uri in places.items()
    )
