"""Parts that requests share: tags, role ARNs, raw overrides and the removal of absent members.

Other functions read or change a rendered training request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from trainyard.errors import Finding, SpecError

CHECKPOINT_VARIABLE = "TRAINYARD_CHECKPOINT_S3_URI"
STATISTICS_VARIABLE = "TRAINYARD_STATISTICS_S3_URI"
KMS_KEY_VARIABLE = "TRAINYARD_KMS_KEY_ID"


def present(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that are set, without None, empty text, empty lists and empty mappings.

    False and 0 count as set.
    """
    return {name: value for name, value in members.items() if value not in (None, "", [], (), {})}


def no_image() -> SpecError:
    """Return the error of a job whose image is neither set nor looked up."""
    finding = Finding(
        where="image_uri",
        what="is not set, and no image was looked up for the framework",
        next_step="set image_uri, or framework_version and py_version",
    )
    return SpecError(finding)


def tag_list(*tags: Mapping[str, str] | None) -> list[dict[str, str]]:
    """Return the merged tags (later ones win) in the form of a request, ordered by key."""
    merged = {key: value for each in tags if each for key, value in each.items()}
    return [{"Key": key, "Value": merged[key]} for key in sorted(merged)]


def role_arn(role: str, account: str | None, *, region: str) -> str:
    """Return the role's ARN; a bare name is completed with the account and the partition of the region.

    Raises:
        SpecError: the role is a bare name, and there is no account.
    """
    if role.startswith("arn:"):
        return role
    if account and role:
        return f"arn:{partition_of(region)}:iam::{account}:role/{role}"
    raise SpecError(
        Finding(
            where="role",
            what="is not an ARN, and the account for it is unknown",
            got=repr(role),
            allowed="arn:<partition>:iam::<account>:role/<name>",
            next_step="set role to the ARN",
        )
    )


@cache
def partition_of(region: str) -> str:
    """Return the partition of a region, such as `aws`, `aws-cn` or `aws-us-gov`. The result is cached.

    Raises:
        botocore.exceptions.UnknownRegionError: no partition has such a region.
    """
    from botocore.session import get_session  # noqa: PLC0415  # DAG files import this module

    return str(get_session().get_partition_for_region(region))


def folder_uri(uri: str) -> str:
    """Return an S3 prefix with one `/` at its end.

    SageMaker restores checkpoints by raw string prefix: `.../ddp-x1` would also restore the objects of `.../ddp-x16`.
    Worked value: `s3://b/ddp-x1` -> `s3://b/ddp-x1/`. Source: syne-tune issue 363, "if this does not end on '/', the
    SM training job will sync back anything from S3 with that prefix".
    """
    return f"{uri.rstrip('/')}/"


def with_checkpoint_folder(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a training job's request with a `/` at the end of its checkpoint prefix.

    A tuning job's training job definition is changed in the same way.
    """
    config = job.get("CheckpointConfig")
    if not isinstance(config, Mapping) or not isinstance(config.get("S3Uri"), str):
        return dict(job)
    return {**job, "CheckpointConfig": {**config, "S3Uri": folder_uri(config["S3Uri"])}}


def place_variables(checkpoint_s3_uri: str) -> dict[str, str]:
    """Return the environment variables that name the S3 prefixes for checkpoints and statistics.

    The training scripts upload to these prefixes.

    SageMaker restores everything below the checkpoints' prefix to every host. The prefix of the statistics is
    therefore not below it. Worked value: `s3://b/run/train/` -> `s3://b/run/train/` and
    `s3://b/run/train-statistics/`.
    """
    folder = folder_uri(checkpoint_s3_uri)
    return {CHECKPOINT_VARIABLE: folder, STATISTICS_VARIABLE: f"{folder[:-1]}-statistics/"}


def without_places(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables except those that `place_variables` returns."""
    return {name: value for name, value in variables.items() if name not in place_variables("")}


def hyperparameters_of(request: Mapping[str, Any]) -> dict[str, str]:
    """Return the hyperparameters that a training request sends, each as text."""
    return dict(request.get("HyperParameters") or {})


def set_hyperparameter(request: dict[str, Any], name: str, value: object) -> None:
    """Set a hyperparameter of a training request to the JSON text of `value`."""
    request["HyperParameters"] = {**hyperparameters_of(request), name: json.dumps(value)}


def checkpoints_of(request: Mapping[str, Any]) -> str | None:
    """Return the S3 prefix of a training request's checkpoints, or None if it has none."""
    uri = (request.get("CheckpointConfig") or {}).get("S3Uri")
    return None if uri is None else str(uri)


def puts_statistics(request: Mapping[str, Any]) -> bool:
    """Return whether a training request's environment names an S3 prefix for the hosts' statistics."""
    return STATISTICS_VARIABLE in (request.get("Environment") or {})


def set_checkpoints(request: dict[str, Any], uri: str) -> None:
    """Set the S3 prefix of a training request's checkpoints.

    The request's environment may have the variables that `place_variables` returns. Their values are then
    changed to match the prefix. A variable that is missing is not added.
    """
    request["CheckpointConfig"] = {**request["CheckpointConfig"], "S3Uri": uri}
    variables, places = request.get("Environment") or {}, place_variables(uri)
    changed = {name: places[name] for name in places.keys() & variables.keys()}
    if changed:
        request["Environment"] = {**variables, **changed}


def vpc_config(
    subnets: tuple[str, ...], security_group_ids: tuple[str, ...]
) -> dict[str, Any] | None:
    """Return the VpcConfig member; None outside a VPC."""
    if not subnets:
        return None
    return {"SecurityGroupIds": list(security_group_ids), "Subnets": list(subnets)}


def with_overrides(request: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request with raw members merged in.

    Mappings merge member by member, None removes a member, anything else replaces it.
    """
    merged = dict(request)
    for name, value in overrides.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(name), Mapping):
            merged[name] = with_overrides(merged[name], value)
        else:
            merged[name] = value
    return merged


def add_environment(request: dict[str, Any], variables: Mapping[str, str]) -> None:
    """Add environment variables to a Create request, or to a tuning request's job definitions.

    Variables that are already set keep their values. An AutoML request has no environment and stays unchanged.
    """
    if "AutoMLJobName" in request:
        return
    definitions = [
        *([request["TrainingJobDefinition"]] if "TrainingJobDefinition" in request else ()),
        *request.get("TrainingJobDefinitions", ()),
    ]
    for each in definitions or [request]:
        each["Environment"] = {**variables, **each.get("Environment", {})}
