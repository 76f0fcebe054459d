"""`RegisterModelOperator`: registers a trained model as a version in the model registry, with its lineage."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.runs.evaluation_metrics import metrics_of
from trainyard.sagemaker_api.model_card import ModelCard
from trainyard.sagemaker_api.model_package import ModelVersion
from trainyard_airflow.operators.connected import ConnectedOperator
from trainyard_airflow.retry_policy import RETRIES, retried_by_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Asset, Context

    from trainyard_airflow.hooks.model_registry import ModelRegistry
    from trainyard_airflow.hooks.objects import S3Objects

log = logging.getLogger(__name__)

ARTIFACT_SHA256 = "model_artifact_sha256"
"""Key of the model artifact's SHA-256 in the result, the event and the lineage."""


@retried_by_error
class RegisterModelOperator(ConnectedOperator):
    """Registers a model once, even if the task is started several times.

    Args:
        version: a `ModelVersion`, a mapping of its fields (templated), or a function `(context,
            jinja_env)` that returns either.
        asset: asset that gets an event with the result: the version's ARN and lineage, the model's address and SHA-256.
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
        self._registered: dict[str, Any] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Return `model_package_arn`, `model_package_group`, the lineage, and the model's address and SHA-256.

        The SHA-256 is None if the address is a prefix of an uncompressed model.

        Raises:
            SpecError: the version is invalid.
            RejectedRequestError: the service rejected the version.
        """
        from trainyard_airflow.hooks.job_spans import describe_task

        version = self._version(context["ti"])
        arn, is_new = self.registry.ensure_version(version)
        if version.image_uri is None:
            self.registry.name_source(arn, version.model_artifact)
        self.log.info("%s model version %s", "Registered" if is_new else "Found", arn)
        describe_task({"trainyard.model_package_arn": arn})
        result: dict[str, Any] = {
            "model_package_arn": arn,
            "model_package_group": version.group,
            "approval_status": version.approval_status,
            "lineage": version.metadata,
            "model_artifact": version.model_artifact,
            "model_artifact_sha256": version.lineage.get(ARTIFACT_SHA256),
        }
        if self.asset:
            context["outlet_events"][self.asset].extra = result
        self._registered = result
        return result

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:  # noqa: ARG002
        """Return the model's file and the version; called by Airflow's OpenLineage provider, also after a failure."""
        from trainyard.runs.lineage import model_package_dataset, s3_dataset
        from trainyard_airflow.hooks.lineage import operator_lineage

        found = self._registered
        if found is None:
            return operator_lineage(inputs=(), outputs=())
        digest = found[ARTIFACT_SHA256]
        return operator_lineage(
            inputs=[s3_dataset(found["model_artifact"], version=digest)],
            outputs=[model_package_dataset(found["model_package_arn"], version=digest)],
        )

    @cached_property
    def registry(self) -> ModelRegistry:
        """The account's model registry."""
        from trainyard_airflow.hooks.model_registry import ModelRegistry

        return ModelRegistry(self.clients)

    def _version(self, ti: Any) -> ModelVersion:
        from trainyard_airflow.hooks.image_digests import image_digest
        from trainyard_airflow.hooks.job_spans import TaskTrace

        given = self.version
        version = given if isinstance(given, ModelVersion) else _version_of(given)
        trace = TaskTrace.of(ti)
        if trace is not None:
            version = replace(version, lineage={**version.lineage, "trace_id": trace.hex_id})
        version = replace(version, model_card=_evaluated(version, self.objects))
        if self.objects.exists(version.model_artifact):
            digest = self.objects.sha256(version.model_artifact)
            version = replace(version, lineage={**version.lineage, ARTIFACT_SHA256: digest})
        if version.image_uri is None or version.image_digest is not None:
            return version
        return replace(version, image_digest=image_digest(self.clients, version.image_uri).value)


def _version_of(fields: Mapping[str, Any]) -> ModelVersion:
    card = fields.get("model_card")
    given = ModelCard(**card) if isinstance(card, Mapping) else card
    return ModelVersion(**{**fields, "model_card": given})


def _evaluated(version: ModelVersion, objects: S3Objects) -> ModelCard | None:
    """Return the version's model card; a card without evaluation metrics gets those stored at `metrics_s3_uri`."""
    card, uri = version.model_card, version.metrics_s3_uri
    content = objects.read_or_none(uri) if card and uri and not card.evaluation_metrics else None
    if card is None or content is None:
        return card
    try:
        document = json.loads(content)
    except ValueError as error:
        log.warning("%s is not JSON, so the model card has no metrics: %s", uri, error)
        return card
    return replace(card, evaluation_metrics=metrics_of(document))
