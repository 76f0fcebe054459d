"""CreateHyperParameterTuningJob request of a TuningJobSpec.

The trials' job definition is derived from a CreateTrainingJob request, so a launcher's flags become static
hyperparameters. Some members of a training request are not allowed in a definition, such as the container's entry
point. Trials run the image's entry point, which does not forward SIGTERM to the ranks (see `sigterm_relay`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.sagemaker_api.request_check import validate_request
from trainyard.sagemaker_api.request_parts import (
    present,
    with_checkpoint_folder,
    with_overrides,
    without_places,
)
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard.specs.tuning_job_ranges import CategoricalRange, ContinuousRange, IntegerRange

if TYPE_CHECKING:
    from trainyard.specs.tuning_job import TuningJobSpec

_OPERATION = "CreateHyperParameterTuningJob"
_AS_THEY_ARE = (
    *("AlgorithmSpecification", "RoleArn", "InputDataConfig", "VpcConfig", "OutputDataConfig"),
    *("ResourceConfig", "StoppingCondition", "CheckpointConfig", "RetryStrategy", "Environment"),
    *("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption"),
    "EnableManagedSpotTraining",
)
_ELSEWHERE = frozenset({"TrainingJobName", "HyperParameters", "Tags"})


def render_tuning_job(
    spec: TuningJobSpec,
    *,
    name: str,
    region: str,
    code_s3_uri: str | None = None,
    image_uri: str | None = None,
    tags: Mapping[str, str] | None = None,
    account: str | None = None,
) -> dict[str, Any]:
    """Return the CreateHyperParameterTuningJob request, already checked against botocore's description of the API.

    Args:
        spec: the job.
        name: the tuning job's name, at most 32 characters; trials are named `<name>-<number>-<8 hex digits>`.
        region: region of the trials.
        code_s3_uri: see `render_training_job`.
        image_uri: see `render_training_job`.
        tags: tags in addition to the training's; the service also adds them to the trials.
        account: account id that completes a bare role name to an ARN.

    Raises:
        SpecError: in three cases, which are checked in this order. First, as for `render_training_job`.
            Second, an override sets members that a training job definition does not have; the error lists
            all of them. Third, the request violates botocore's description; the error lists all violations.
    """
    trial = render_training_job(
        spec.training,
        name=name,
        region=region,
        code_s3_uri=code_s3_uri,
        image_uri=image_uri,
        tags=tags,
        account=account,
        searched=tuple(spec.ranges),
    )
    members = {
        "HyperParameterTuningJobName": name,
        "HyperParameterTuningJobConfig": _config(spec),
        "TrainingJobDefinition": _definition(trial, volume_gb=spec.training.volume_size),
        "WarmStartConfig": _warm_start(spec),
        "Tags": trial.get("Tags"),
    }
    request = with_overrides(present(members), spec.raw_request_overrides)
    if isinstance(trained := request.get("TrainingJobDefinition"), Mapping):
        request["TrainingJobDefinition"] = with_checkpoint_folder(trained)
    validate_request(_OPERATION, request)
    return request


def range_text(value: Any) -> str:
    """Return a bound or a category as JSON text, which the toolkit decodes to the same value."""
    return repr(value) if isinstance(value, float) else json.dumps(value)


def _config(spec: TuningJobSpec) -> dict[str, Any]:
    resources = spec.hyperband
    return present(
        {
            "Strategy": str(spec.strategy),
            "StrategyConfig": resources
            and {
                "HyperbandStrategyConfig": {
                    "MinResource": resources.min_resource,
                    "MaxResource": resources.max_resource,
                }
            },
            "HyperParameterTuningJobObjective": {
                "Type": str(spec.objective_type),
                "MetricName": spec.objective_metric_name,
            },
            "ResourceLimits": present(
                {
                    "MaxNumberOfTrainingJobs": spec.max_jobs,
                    "MaxParallelTrainingJobs": spec.max_parallel_jobs,
                    "MaxRuntimeInSeconds": spec.max_runtime_s,
                }
            ),
            "ParameterRanges": _ranges(spec),
            "TrainingJobEarlyStoppingType": str(spec.early_stopping_type),
            "TuningJobCompletionCriteria": _criteria(spec),
            "RandomSeed": spec.random_seed,
        }
    )


def _ranges(spec: TuningJobSpec) -> dict[str, Any]:
    groups: dict[str, list[dict[str, Any]]] = {}
    has_toolkit = spec.training.entry_point is not None
    for name, each in spec.ranges.items():
        if isinstance(each, CategoricalRange):
            # Without the toolkit nobody decodes JSON: text goes as it is, as among static hyperparameters.
            plain = [
                value if isinstance(value, str) and not has_toolkit else range_text(value)
                for value in each.values
            ]
            groups.setdefault("CategoricalParameterRanges", []).append(
                {"Name": name, "Values": plain}
            )
        else:
            kind = "Integer" if isinstance(each, IntegerRange) else "Continuous"
            groups.setdefault(f"{kind}ParameterRanges", []).append(_scaled(name, each))
    return groups


def _scaled(name: str, each: IntegerRange | ContinuousRange) -> dict[str, str]:
    return {
        "Name": name,
        "MinValue": range_text(each.min_value),
        "MaxValue": range_text(each.max_value),
        "ScalingType": str(each.scaling_type),
    }


def _criteria(spec: TuningJobSpec) -> dict[str, Any] | None:
    criteria = spec.completion_criteria
    if criteria is None:
        return None
    patience = criteria.max_number_of_training_jobs_not_improving
    return present(
        {
            "TargetObjectiveMetricValue": criteria.target_objective_metric_value,
            "BestObjectiveNotImproving": patience
            and {"MaxNumberOfTrainingJobsNotImproving": patience},
            "ConvergenceDetected": criteria.complete_on_convergence
            and {"CompleteOnConvergence": "Enabled"},
        }
    )


def _definition(trial: Mapping[str, Any], *, volume_gb: int) -> dict[str, Any]:
    odd = sorted(set(trial) - set(_AS_THEY_ARE) - _ELSEWHERE)
    if odd:
        raise SpecError(
            [
                Finding(
                    where=f"training.raw_request_overrides.{name}",
                    what="is not a member of a tuning job's training job definition",
                    next_step="remove it",
                )
                for name in odd
            ]
        )
    definition = {name: trial[name] for name in _AS_THEY_ARE if name in trial}
    if "Environment" in definition:  # the service appends each trial's name to the address
        own = without_places(definition.pop("Environment"))
        definition |= present({"Environment": own})
    if "HyperParameters" in trial:
        definition["StaticHyperParameters"] = trial["HyperParameters"]
    preferences = definition.get("ResourceConfig", {}).get("InstancePreferences")
    if preferences:
        definition["HyperParameterTuningResourceConfig"] = _first_to_be_had(
            definition.pop("ResourceConfig"), volume_gb=volume_gb
        )
    return definition


def _first_to_be_had(resources: Mapping[str, Any], *, volume_gb: int) -> dict[str, Any]:
    """Return a training request's instance preferences as a tuning job's resource configuration.

    Each trial gets the first instance type with capacity.
    """
    count = resources.get("InstanceCount", 1)
    return present(
        {
            "VolumeKmsKeyId": resources.get("VolumeKmsKeyId"),
            "AllocationStrategy": "Prioritized",
            "InstanceConfigs": [
                {
                    "InstanceType": each["InstanceType"],
                    "InstanceCount": each.get("InstanceCount", count),
                    "VolumeSizeInGB": volume_gb,
                }
                for each in resources["InstancePreferences"]
            ],
        }
    )


def _warm_start(spec: TuningJobSpec) -> dict[str, Any] | None:
    if spec.warm_start is None:
        return None
    return {
        "ParentHyperParameterTuningJobs": [
            {"HyperParameterTuningJobName": name} for name in spec.warm_start.parents
        ],
        "WarmStartType": str(spec.warm_start.warm_start_type),
    }
