"""`RegisterModelOperator`: registers a trained model as a version in the model registry, with its lineage."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.sagemaker_api.request_check import validate_request
from trainyard.sagemaker_api.serving import INSTANCE_TYPE_LISTS
from trainyard_airflow.operators.connected import ConnectedOperator
from trainyard_airflow.retry_policy import RETRIES, retried_by_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Asset, Context

    from trainyard_airflow.hooks.model_registry import ModelRegistry

_LONGEST_VALUE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """Model version to register.

    Attributes:
        group: the model package group; created if it does not exist.
        model_artifact: S3 address of model.tar.gz.
        image_uri: the image that serves the model; None registers the model without an InferenceSpecification. In that
            case its address is in the metadata and in the package's SourceUri.
        image_digest: digest of that image; None = the service looks it up.
        environment: variables of that image's container.
        instance_types: types that can serve the model, for endpoints and batch transform; empty = not stated.
        source: identity of the version, by which a second registration finds it: the training job's name.
        metrics_s3_uri: S3 address of the evaluation's JSON, or None.
        lineage: values stored with the version by name, such as the data's fingerprint and the code's SHA-256.
    """

    group: str
    model_artifact: str
    source: str
    image_uri: str | None = None
    image_digest: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    instance_types: tuple[str, ...] = ()
    approval_status: str = "PendingManualApproval"
    metrics_s3_uri: str | None = None
    lineage: Mapping[str, Any] = field(default_factory=dict)


def render_model_package(version: ModelVersion) -> dict[str, Any]:
    """Return the CreateModelPackage request, checked against the service's model.

    Raises:
        SpecError: the request violates the service's model; reports all faults at once.
    """
    request: dict[str, Any] = {
        "ModelPackageGroupName": version.group,
        "ModelPackageDescription": f"training job {version.source}",
        "ModelApprovalStatus": version.approval_status,
        **_model(version),
        "CustomerMetadataProperties": {
            key: str(value)[:_LONGEST_VALUE]
            for key, value in {**version.lineage, "model_artifact": version.model_artifact}.items()
            if value not in (None, "")
        },
        "ClientToken": hashlib.sha256(f"{version.group}/{version.source}".encode()).hexdigest()[
            :36
        ],
    }
    if version.metrics_s3_uri:
        statistics = {"ContentType": "application/json", "S3Uri": version.metrics_s3_uri}
        request["ModelMetrics"] = {"ModelQuality": {"Statistics": statistics}}
    validate_request("CreateModelPackage", request)
    return request


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
            "SupportedContentTypes": ["application/json"],
            "SupportedResponseMIMETypes": ["application/json"],
        }
    }


@retried_by_error
class RegisterModelOperator(ConnectedOperator):
    """Registers a model once, even if the task is started several times; returns the version's ARN.

    Args:
        version: a `ModelVersion`, a mapping of its fields (templated), or a function `(context,
            jinja_env)` that returns either.
        asset: gets an event with the version's ARN and lineage.
        aws_conn_id: the connection.
        region_name: overrides the connection's region.
    """

    template_fields: Sequence[str] = ("version", "aws_conn_id", "region_name")
    template_fields_renderers: ClassVar[dict[str, str]] = {"version": "json"}
    ui_color = "#f3eafa"

    def __init__(
        self,
        *,
        version: Any,
        asset: Asset | None = None,
        **kwargs: Any,
    ) -> None:
        outlets = [*kwargs.pop("outlets", []), *([asset] if asset else [])]
        super().__init__(outlets=outlets, **{**RETRIES, **kwargs})
        self.version = version
        self.asset = asset

    def execute(self, context: Context) -> dict[str, Any]:
        """Return `model_package_arn`, `model_package_group` and the lineage.

        Raises:
            SpecError: the version is invalid.
            RejectedRequestError: the service rejected it.
        """
        version = self._version()
        request = render_model_package(version)
        arn, is_new = self.registry.ensure_version(request)
        if version.image_uri is None:
            self.registry.name_source(arn, version.model_artifact)
        self.log.info("%s model version %s", "Registered" if is_new else "Found", arn)
        result = {
            "model_package_arn": arn,
            "model_package_group": version.group,
            "approval_status": version.approval_status,
            "lineage": request["CustomerMetadataProperties"],
        }
        if self.asset:
            context["outlet_events"][self.asset].extra = result
        return result

    @cached_property
    def registry(self) -> ModelRegistry:
        """The account's model registry."""
        from trainyard_airflow.hooks.model_registry import ModelRegistry

        return ModelRegistry(self.clients)

    def _version(self) -> ModelVersion:
        from trainyard_airflow.hooks.image_digests import image_digest

        given = self.version
        version = given if isinstance(given, ModelVersion) else ModelVersion(**given)
        if version.image_uri is None or version.image_digest is not None:
            return version
        return replace(version, image_digest=image_digest(self.clients, version.image_uri).value)
