"""CreateAutoMLJob and DescribeAutoMLJob: the first version of the AutoML API, converted to the second version.

Airflow's stock AutoML operator and `AutoML` of the SDK v2 use it.
"""

from __future__ import annotations

from typing import Any

from sagemaker_engine.wire.errors import ValidationError

FIRST = "FirstVersion"
"""Member of a stored request that holds the original CreateAutoMLJob request."""
_OF_ALL_CHANNELS = ("TargetAttributeName", "SampleWeightAttributeName")


def as_second_version(request: dict[str, Any]) -> dict[str, Any]:
    """Return the CreateAutoMLJobV2 request that is equivalent to a CreateAutoMLJob request.

    Raises:
        ValidationError: The channels of `request` name different target columns, or different columns of sample
            weights.
    """
    config = request.get("AutoMLJobConfig", {})
    generation = config.get("CandidateGenerationConfig", {})
    channels = request["InputDataConfig"]
    tabular = {
        **_agreed(channels),
        "ProblemType": request.get("ProblemType"),
        "Mode": config.get("Mode"),
        "CompletionCriteria": config.get("CompletionCriteria"),
        "GenerateCandidateDefinitionsOnly": request.get("GenerateCandidateDefinitionsOnly"),
        "FeatureSpecificationS3Uri": generation.get("FeatureSpecificationS3Uri"),
    }
    if "AlgorithmsConfig" in generation:
        algorithms = generation["AlgorithmsConfig"]
        tabular["CandidateGenerationConfig"] = {"AlgorithmsConfig": algorithms}
    kept = ("AutoMLJobName", "OutputDataConfig", "RoleArn", "AutoMLJobObjective", "Tags")
    return _present(
        {
            **{name: request.get(name) for name in kept},
            "ModelDeployConfig": request.get("ModelDeployConfig"),
            "AutoMLJobInputDataConfig": [
                {name: value for name, value in each.items() if name not in _OF_ALL_CHANNELS}
                for each in channels
            ],
            "AutoMLProblemTypeConfig": {"TabularJobConfig": _present(tabular)},
            "SecurityConfig": config.get("SecurityConfig"),
            "DataSplitConfig": config.get("DataSplitConfig"),
            FIRST: {name: value for name, value in request.items() if name != "Tags"},
        }
    )


def as_first_version(described: dict[str, Any]) -> dict[str, Any] | None:
    """Convert a response of DescribeAutoMLJobV2 to one of DescribeAutoMLJob.

    Return None if CreateAutoMLJobV2 created the job.
    """
    if FIRST not in described:
        return None
    resolved = described.get("ResolvedAttributes")
    if resolved is not None:
        types = resolved["AutoMLProblemTypeResolvedAttributes"]["TabularResolvedAttributes"]
        resolved = {**resolved, **types}
    return {**described, **described[FIRST], "ResolvedAttributes": resolved}


def _agreed(channels: list[dict[str, Any]]) -> dict[str, str]:
    """Return TargetAttributeName and SampleWeightAttributeName, which all channels must share.

    Raises:
        ValidationError: Two channels have different values.
    """
    for name in _OF_ALL_CHANNELS:
        values = {each[name] for each in channels if name in each}
        if len(values) > 1:
            raise ValidationError(
                f"{name} must be the same in all channels of InputDataConfig; got "
                f"{', '.join(sorted(values))}."
            )
    return {name: each[name] for each in channels for name in _OF_ALL_CHANNELS if name in each}


def _present(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
