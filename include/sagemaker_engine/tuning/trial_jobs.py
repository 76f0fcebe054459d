"""Training job of a trial: its name and its request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.tuning.plan import OBJECTIVE_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.tuning.plan import Definition
    from sagemaker_engine.tuning.tables import TuningRow

_TAKEN_OVER = (
    *("RoleArn", "InputDataConfig", "VpcConfig", "OutputDataConfig", "StoppingCondition"),
    *("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption"),
    *("EnableManagedSpotTraining", "RetryStrategy", "Environment", "AlgorithmSpecification"),
)


def trial_name(tuning: TuningRow, number: int) -> str:
    """Return the training job's name, `<tuning job>-<NNN>-<8 hex>`, which is the same at every call.

    `number` starts at 0, and NNN in the name starts at 001.
    """
    return f"{tuning.name}-{number + 1:03d}-{tuning.job_suffix(number)}"


def training_request(
    definition: Definition, name: str, point: Mapping[str, str], *, tags: Mapping[str, str]
) -> dict[str, Any]:
    """Return the CreateTrainingJob request of a trial.

    If the definition has a CheckpointConfig, the job's name is appended to its S3Uri. So no trial resumes from
    another trial's checkpoints.
    """
    template = definition.template
    request = {key: template[key] for key in _TAKEN_OVER if key in template}
    request["TrainingJobName"] = name
    request["HyperParameters"] = {
        **definition.static,
        **point,
        OBJECTIVE_KEY: definition.metric,
    }
    request["ResourceConfig"] = resources_of(template)
    if "CheckpointConfig" in template:
        config = template["CheckpointConfig"]
        request["CheckpointConfig"] = {**config, "S3Uri": f"{config['S3Uri'].rstrip('/')}/{name}"}
    if tags:
        request["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
    return request


def resources_of(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ResourceConfig for the trials that use the training job definition `template`.

    If the definition gives several instance types (InstanceConfigs), the first one is used.
    """
    if "ResourceConfig" in template:
        return dict(template["ResourceConfig"])
    tuning = template.get("HyperParameterTuningResourceConfig", {})
    first = tuning.get("InstanceConfigs", [{}])[0]
    own = {k: v for k, v in tuning.items() if k not in {"InstanceConfigs", "AllocationStrategy"}}
    return {**own, **first}
