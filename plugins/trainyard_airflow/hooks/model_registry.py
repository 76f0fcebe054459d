"""The model registry: model package groups and versions, each created once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from trainyard_airflow.hooks.refusals import code_and_message, refusals_typed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard_airflow.hooks.aws_clients import AwsClients

log = logging.getLogger(__name__)

_PAGE_SIZE = 100


class ModelRegistry:
    """Model packages of one account and region."""

    def __init__(self, clients: AwsClients) -> None:
        self._client = clients.client("sagemaker")

    def ensure_version(self, request: Mapping[str, Any]) -> tuple[str, bool]:
        """Return the ARN of the version that the request describes, and whether this call created it.

        A version with the same description in the group counts as the same version. The service's client token
        expires, and a task may be cleared much later.

        Raises:
            TrainingRunError: the service rejected a call.
        """
        group = request["ModelPackageGroupName"]
        with refusals_typed(f"model package group {group}"):
            self._ensure_group(group)
            known = self._find(group, request["ModelPackageDescription"])
            if known:
                return known, False
            return str(self._client.create_model_package(**request)["ModelPackageArn"]), True

    def name_source(self, arn: str, uri: str) -> None:
        """Set a version's SourceUri. A rejection is a warning, since the metadata also have the address.

        As in the SageMaker SDK, this is a separate call: Create accepts only the ARN of a model or package.
        """
        try:
            self._client.update_model_package(ModelPackageArn=arn, SourceUri=uri)
        except ClientError as error:
            log.warning("%s has no SourceUri; its metadata name %s: %s", arn, uri, error)

    def _ensure_group(self, group: str) -> None:
        try:
            self._client.describe_model_package_group(ModelPackageGroupName=group)
        except ClientError as error:
            if code_and_message(error)[0] not in {"ValidationException", "ResourceNotFound"}:
                raise
            self._client.create_model_package_group(
                ModelPackageGroupName=group,
                ModelPackageGroupDescription="Models trained by Trainyard",
            )

    def _find(self, group: str, description: str) -> str | None:
        pages = self._client.get_paginator("list_model_packages").paginate(
            ModelPackageGroupName=group,
            SortBy="CreationTime",
            SortOrder="Descending",
            PaginationConfig={"PageSize": _PAGE_SIZE},
        )
        for summary in (each for page in pages for each in page["ModelPackageSummaryList"]):
            if summary.get("ModelPackageDescription") == description:
                return str(summary["ModelPackageArn"])
        return None
