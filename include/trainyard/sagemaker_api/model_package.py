"""Version of a model in the model registry, and its CreateModelPackage request."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainyard.sagemaker_api.model_card import MOST_CHARACTERS
from trainyard.sagemaker_api.request_check import validate_request
from trainyard.sagemaker_api.serving import INSTANCE_TYPE_LISTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.sagemaker_api.model_card import ModelCard

log = logging.getLogger(__name__)

_LONGEST_VALUE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """Model version to register.

    Attributes:
        group: the model package group; created if it does not exist.
        model_artifact: S3 address of model.tar.gz.
        image_uri: the image that serves the model; None registers the model without an InferenceSpecification. The
            model's address is then in the metadata, and the registry hook sets it as the package's SourceUri.
        image_digest: digest of that image; None = the service looks it up.
        environment: variables of that image's container.
        instance_types: types that can serve the model, for endpoints and batch transform; empty = not stated.
        source: the training job's name, by which a second registration finds the version.
        metrics_s3_uri: S3 address of the evaluation's JSON, or None.
        content_types: content types of requests to that image.
        model_card: facts for the model card; None = no card.
        lineage: values stored with the version by name, such as the data's fingerprint and the code's SHA-256.
    """

    group: str
    model_artifact: str
    source: str
    image_uri: str | None = None
    image_digest: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    instance_types: tuple[str, ...] = ()
    content_types: tuple[str, ...] = ("application/json",)
    approval_status: str = "PendingManualApproval"
    metrics_s3_uri: str | None = None
    model_card: ModelCard | None = None
    lineage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """The version's description, `training job <source>`. A second registration finds the version by this text."""
        return f"training job {self.source}"

    @property
    def metadata(self) -> dict[str, str]:
        """The version's metadata: lineage and address of the model, as texts of at most 256 characters."""
        values = {**self.lineage, "model_artifact": self.model_artifact}
        return {
            key: str(value)[:_LONGEST_VALUE]
            for key, value in values.items()
            if value not in (None, "")
        }


def render_model_package(version: ModelVersion) -> dict[str, Any]:
    """Return the CreateModelPackage request, already checked against botocore's description of the API.

    Raises:
        SpecError: the request violates that description; the error lists all violations.
    """
    request: dict[str, Any] = {
        "ModelPackageGroupName": version.group,
        "ModelPackageDescription": version.description,
        "ModelApprovalStatus": version.approval_status,
        **_model(version),
        **_card(version),
        "CustomerMetadataProperties": version.metadata,
        "ClientToken": hashlib.sha256(f"{version.group}/{version.source}".encode()).hexdigest()[
            :36
        ],
    }
    if version.metrics_s3_uri:
        statistics = {"ContentType": "application/json", "S3Uri": version.metrics_s3_uri}
        request["ModelMetrics"] = {"ModelQuality": {"Statistics": statistics}}
    validate_request("CreateModelPackage", request)
    return request


def without_card(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a CreateModelPackage request without its model card; None if the request has no card."""
    if "ModelCard" not in request:
        return None
    return {key: value for key, value in request.items() if key != "ModelCard"}


def package_arn(answer: Mapping[str, Any]) -> str:
    """Return the ARN in a response of CreateModelPackage, or in a summary of ListModelPackages."""
    return str(answer["ModelPackageArn"])


def listed_arn(page: Mapping[str, Any], version: ModelVersion) -> str | None:
    """Return the ARN of the version on a page of ListModelPackages; None if the page does not have it."""
    for summary in page["ModelPackageSummaryList"]:
        if summary.get("ModelPackageDescription") == version.description:
            return package_arn(summary)
    return None


def _card(version: ModelVersion) -> dict[str, Any]:
    """Return the request's members that contain the model card. The card is a draft for a person to complete.

    The result is empty if the version has no card, or if its card is longer than the service allows.
    """
    if version.model_card is None:
        return {}
    text = version.model_card.text()
    if len(text) > MOST_CHARACTERS:
        log.warning(
            "The model is registered without a model card: the card has %d characters; allowed: %d",
            len(text),
            MOST_CHARACTERS,
        )
        return {}
    return {"ModelCard": {"ModelCardContent": text, "ModelCardStatus": "Draft"}}


def _model(version: ModelVersion) -> dict[str, Any]:
    """Return the request's members for serving the model; empty without an image."""
    if version.image_uri is None:
        return {}
    container: dict[str, Any] = {
        "Image": version.image_uri,
        "ModelDataUrl": version.model_artifact,
        **({"ImageDigest": version.image_digest} if version.image_digest else {}),
        **({"Environment": dict(version.environment)} if version.environment else {}),
    }
    types = list(version.instance_types)
    return {
        "InferenceSpecification": {
            "Containers": [container],
            **(dict.fromkeys(INSTANCE_TYPE_LISTS, types) if types else {}),
            "SupportedContentTypes": list(version.content_types),
            "SupportedResponseMIMETypes": ["application/json"],
        }
    }
