"""The job of one AutoML step: its name, its request and its output folders."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from sagemaker_engine.automl.plan import METRICS, tabular
from sagemaker_engine.automl.tables import StepKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.automl.plan import AutoMLPlan, Problem
    from sagemaker_engine.automl.tables import AutoMLRow, AutoMLStep

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-sklearn-automl:2.5-1-cpu-py3"
"""Image of the service's feature pipelines. The engine's substitute for it contains `sagemaker_automl_container`."""
INSTANCE_TYPE = "ml.m5.4xlarge"
"""Instance type on which the service trains candidates, as documented."""
PROGRAMS = "sagemaker_automl_container"
INSIDE = "/opt/ml/processing"
MAX_STEP_RUNTIME_S = 86_400
BATCH = 2
"""Number of candidates that run at a time.

The next batch is chosen after all of them have ended. The seed therefore determines every candidate.
"""
VALIDATION, TRAIN = "validation", "train"
MORE_METRICS = ("LogLoss", "InferenceLatency")
"""Additional metrics, which cannot be objectives."""
_CODES = {
    "linear-learner": "ll",
    "randomforest": "rf",
    "extra-trees": "et",
    "xgboost": "xgb",
    "lightgbm": "lgb",
    "mlp": "mlp",
}


def job_name(row: AutoMLRow, number: int, code: str, *, is_trial: bool = False) -> str:
    """Return the name of a step's job, `<AutoML job>-<code>-<NNN>-<8 hex>`. It is the same at every call.

    As on AWS, the name of a trial (a candidate of the mode HYPERPARAMETER_TUNING) has no hyphen before the code.
    """
    joint = "" if is_trial else "-"
    return f"{row.name}{joint}{code}-{number:03d}-{row.job_suffix(number)}"


def code_of(kind: StepKind, recipe: Mapping[str, Any]) -> str:
    """Return the abbreviation of the step in its job's name, such as `xgb`."""
    match kind:
        case StepKind.ANALYSIS:
            return "pr"
        case StepKind.CANDIDATE:
            return _CODES[recipe["algorithm"]]
        case StepKind.ENSEMBLE:
            return "ens"
        case StepKind.EXPLANATION:
            return "exp"


def request_of(row: AutoMLRow, step: AutoMLStep, plan: AutoMLPlan | None) -> dict[str, Any]:
    """Return the Create request of a step's job, without its tags.

    `plan` is None only for the analysis step, because the plan is made from the result of that step.
    """
    if step.kind is StepKind.ANALYSIS:
        return _analysis(row, step)
    assert plan is not None  # noqa: S101  # no other step is decided before the analysis has ended
    match step.kind:
        case StepKind.CANDIDATE:
            given = {
                "algorithm": step.recipe["algorithm"],
                "point": json.dumps(step.recipe["point"]),
            }
            return _training(row, step, plan, program="train", given=given, channels={})
        case StepKind.ENSEMBLE:
            channels = {
                f"member-{place:02d}": f"{candidates_uri(row)}/{name}/output/"
                for place, name in enumerate(step.recipe["members"])
            }
            given = {"objective": plan.objective}
            return _training(row, step, plan, program="ensemble", given=given, channels=channels)
        case StepKind.EXPLANATION:
            return _explanation(row, step, plan)


def output_uri(row: AutoMLRow) -> str:
    """Return the S3 folder of all outputs of an AutoML job."""
    return f"{row.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{row.name}"


def candidates_uri(row: AutoMLRow) -> str:
    """Return the S3 folder that has one folder per candidate."""
    return f"{output_uri(row)}/candidates"


def explainability_uri(row: AutoMLRow, candidate: str) -> str:
    """Return the S3 folder of a candidate's explanation."""
    return f"{output_uri(row)}/documentation/explainability/{candidate}"


def insights_uri(row: AutoMLRow, candidate: str) -> str:
    """Return the S3 folder of a candidate's model insights."""
    return f"{output_uri(row)}/documentation/model_insights/{candidate}"


def metric_names(problem: Problem) -> tuple[str, ...]:
    """Return the names of the metrics that a candidate logs."""
    return (*METRICS[problem], *MORE_METRICS)


def num_threads() -> int:
    """Return the number of threads per step, so that a batch of steps fits the machine.

    More threads would slow each other down, because the threads of boosting libraries spin while they wait.
    """
    return max(1, (os.cpu_count() or 1) // BATCH)


def _prepared_uri(row: AutoMLRow) -> str:
    return f"{output_uri(row)}/preprocessed-data"


def _analysis(row: AutoMLRow, step: AutoMLStep) -> dict[str, Any]:
    config = tabular(row.request)
    channels = {
        each.get("ChannelType", "training"): each
        for each in row.request["AutoMLJobInputDataConfig"]
    }
    fraction = row.request.get("DataSplitConfig", {}).get("ValidationFraction")
    wishes = {
        "target": config["TargetAttributeName"],
        "problem_type": config.get("ProblemType"),
        "weight": config.get("SampleWeightAttributeName"),
        "validation_fraction": None if fraction is None else repr(fraction),
        "seed": str(row.seed),
        **{name: _format(each) for name, each in channels.items()},
    }
    arguments = {name: value for name, value in wishes.items() if value is not None}
    inputs = {name: each["DataSource"]["S3DataSource"] for name, each in channels.items()}
    if "FeatureSpecificationS3Uri" in config:
        uri = config["FeatureSpecificationS3Uri"]
        inputs["features"] = {"S3DataType": "S3Prefix", "S3Uri": uri}
    outputs = {"prepared": _prepared_uri(row)}
    return _processing(
        row, step, program="analyze", arguments=arguments, inputs=inputs, outputs=outputs
    )


def _explanation(row: AutoMLRow, step: AutoMLStep, plan: AutoMLPlan) -> dict[str, Any]:
    candidate = step.recipe["candidate"]
    return _processing(
        row,
        step,
        program="explain",
        arguments={"objective": plan.objective, "candidate": candidate},
        inputs={
            "prepared": _prefix(f"{_prepared_uri(row)}/"),
            "candidate": _prefix(f"{candidates_uri(row)}/{candidate}/output/"),
        },
        outputs={
            "explainability": explainability_uri(row, candidate),
            "insights": insights_uri(row, candidate),
        },
    )


def _processing(
    row: AutoMLRow,
    step: AutoMLStep,
    *,
    program: str,
    arguments: dict[str, str],
    inputs: dict[str, dict[str, Any]],
    outputs: dict[str, str],
) -> dict[str, Any]:
    security = row.request.get("SecurityConfig", {})
    network = {"VpcConfig": security["VpcConfig"]} if "VpcConfig" in security else {}
    return {
        "ProcessingJobName": step.job_name,
        "RoleArn": row.request["RoleArn"],
        "AppSpecification": {
            "ImageUri": IMAGE,
            "ContainerEntrypoint": ["python", "-m", f"{PROGRAMS}.{program}"],
            "ContainerArguments": [text for pair in arguments.items() for text in pair],
        },
        "ProcessingInputs": [
            {
                "InputName": name,
                "S3Input": {**source, "LocalPath": f"{INSIDE}/{name}", "S3InputMode": "File"},
            }
            for name, source in inputs.items()
        ],
        "ProcessingOutputConfig": {
            "Outputs": [
                {
                    "OutputName": name,
                    "S3Output": {
                        "S3Uri": uri,
                        "LocalPath": f"{INSIDE}/{name}",
                        "S3UploadMode": "EndOfJob",
                    },
                }
                for name, uri in outputs.items()
            ]
        },
        "ProcessingResources": {"ClusterConfig": _cluster(security)},
        "Environment": {"OMP_NUM_THREADS": str(num_threads())},
        "StoppingCondition": {"MaxRuntimeInSeconds": MAX_STEP_RUNTIME_S},
        **({"NetworkConfig": network} if network else {}),
    }


def _training(
    row: AutoMLRow,
    step: AutoMLStep,
    plan: AutoMLPlan,
    *,
    program: str,
    given: dict[str, str],
    channels: dict[str, str],
) -> dict[str, Any]:
    security = row.request.get("SecurityConfig", {})
    criteria = tabular(row.request).get("CompletionCriteria", {})
    limit = criteria.get("MaxRuntimePerTrainingJobInSeconds", MAX_STEP_RUNTIME_S)
    output = {**row.request["OutputDataConfig"], "S3OutputPath": candidates_uri(row)}
    sources = {"prepared": f"{_prepared_uri(row)}/", **channels}
    return {
        "TrainingJobName": step.job_name,
        "RoleArn": row.request["RoleArn"],
        "HyperParameters": {**given, "seed": str(row.seed)},
        "Environment": {"OMP_NUM_THREADS": str(num_threads())},
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python", "-m", f"{PROGRAMS}.{program}"],
            "MetricDefinitions": [
                {"Name": f"{data_set}:{name}", "Regex": rf"^{data_set}:{name}=(\S+)$"}
                for data_set in (TRAIN, VALIDATION)
                for name in metric_names(plan.problem)
            ],
        },
        "InputDataConfig": [
            {"ChannelName": name, "DataSource": {"S3DataSource": _prefix(uri)}}
            for name, uri in sources.items()
        ],
        "OutputDataConfig": output,
        "ResourceConfig": _cluster(security),
        "StoppingCondition": {"MaxRuntimeInSeconds": limit},
        **({"VpcConfig": security["VpcConfig"]} if "VpcConfig" in security else {}),
    }


def _format(channel: Mapping[str, Any]) -> str:
    """Return the format of a channel's files: parquet, csv or csv.gz."""
    if "parquet" in channel.get("ContentType", ""):
        return "parquet"
    return "csv.gz" if channel.get("CompressionType") == "Gzip" else "csv"


def _prefix(uri: str) -> dict[str, str]:
    return {"S3DataType": "S3Prefix", "S3Uri": uri}


def _cluster(security: Mapping[str, Any]) -> dict[str, Any]:
    key = security.get("VolumeKmsKeyId")
    return {
        "InstanceType": INSTANCE_TYPE,
        "InstanceCount": 1,
        "VolumeSizeInGB": 30,
        **({"VolumeKmsKeyId": key} if key else {}),
    }
