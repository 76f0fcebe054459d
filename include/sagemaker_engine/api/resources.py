"""Checks of a Create request against existing resources: role, image, data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sagemaker_engine.jobs.images import UnknownImageError, check_exists, resolve_image
from sagemaker_engine.jobs.launchers import missing_model_parallel
from sagemaker_engine.wire.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.api.context import ApiContext

_S3_URI = re.compile(r"(?:s3|https)://([a-z0-9][a-z0-9.\-]{1,61}[a-z0-9])(?:/(.*))?", re.DOTALL)


def check_role(context: ApiContext, role_arn: str) -> None:
    """Check that the execution role exists and that SageMaker may assume it.

    Raises:
        ValidationError: The role does not exist, or SageMaker may not assume it.
    """
    account, name = role_arn.split(":")[4], role_arn.rpartition("/")[2]
    trust = context.preconditions.role_trust(name) if account == context.settings.account else None
    if trust is None or not _trusts_sagemaker(trust):
        raise ValidationError(
            f"Could not assume role {role_arn}. Please ensure that the role exists and allows "
            "principal 'sagemaker.amazonaws.com' to assume the role."
        )


def check_image(context: ApiContext, image: str) -> None:
    """Check that an image exists, and that a local runtime emulates it.

    Raises:
        ValidationError: The image does not exist, or no runtime emulates it.
    """
    check_image_exists(context, image)
    try:
        resolve_image(image, image_files=context.settings.image_files)
    except UnknownImageError as error:
        raise ValidationError(f"Requested image {image} not found: {error}.") from error


def check_image_exists(context: ApiContext, image: str) -> None:
    """Check that AWS publishes the image, or that it is one of the team's own (`own_images.toml`).

    Raises:
        ValidationError: The image does not exist.
    """
    try:
        check_exists(image, image_files=context.settings.image_files)
    except UnknownImageError as error:
        raise ValidationError(f"Requested image {image} not found: {error}.") from error


def check_model_parallel(
    context: ApiContext, image: str, hyperparameters: Mapping[str, str]
) -> None:
    """Check that the image has SageMaker's model parallel library, if the hyperparameters request it.

    None of the engine's own images has version 1 of the library.

    Raises:
        ValidationError: The image lacks the library.
    """
    runtime = resolve_image(
        image,
        images_folder=context.settings.images_folder,
        image_files=context.settings.image_files,
    )
    if problem := missing_model_parallel(hyperparameters, runtime):
        raise ValidationError(f"Requested image {image}: {problem}.")


def check_input(context: ApiContext, *, uri: str, role_arn: str, region: str) -> None:
    """Check that objects exist under an input's S3 URI.

    Raises:
        ValidationError: No object exists, or the text is not an S3 URI.
    """
    bucket, prefix = split_s3_uri(uri)
    if not context.preconditions.has_objects(bucket, prefix):
        raise ValidationError(
            f'No S3 objects found under S3 URL "{uri}" given in input data source. Please ensure '
            f"that the bucket exists in the selected region ({region}), that objects exist under "
            f'that S3 prefix, and that the role "{role_arn}" has "s3:ListBucket" permissions on '
            f'bucket "{bucket}".'
        )


def check_output(context: ApiContext, *, uri: str) -> None:
    """Check that the bucket of an output exists.

    Raises:
        ValidationError: The bucket does not exist, or `uri` is not an S3 URI.
    """
    bucket, _ = split_s3_uri(uri)
    if not context.preconditions.has_bucket(bucket):
        raise ValidationError(
            f'The S3 bucket "{bucket}" of "{uri}" does not exist or is not in this region.'
        )


def split_s3_uri(uri: str) -> tuple[str, str]:
    """Return bucket and key prefix of `s3://bucket/prefix`.

    Raises:
        ValidationError: The text is not an S3 URI.
    """
    found = _S3_URI.fullmatch(uri)
    if found is None:
        raise ValidationError(f"Invalid S3 URI: {uri}. Expected s3://bucket/prefix.")
    return found[1], found[2] or ""


def _trusts_sagemaker(policy: str | dict[str, Any]) -> bool:
    text = unquote(policy) if isinstance(policy, str) else str(policy)
    return "sagemaker.amazonaws.com" in text or re.search(r'"AWS"\s*:\s*"\*"', text) is not None
