"""The model registry: model package groups and versions, each created once."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from trainyard.sagemaker_api.failures import is_name_taken
from trainyard.sagemaker_api.model_package import (
    listed_arn,
    package_arn,
    render_model_package,
    without_card,
)
from trainyard_airflow.hooks.refusals import answer_or_none, code_and_message, refusals_typed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.sagemaker_api.model_package import ModelVersion
    from trainyard_airflow.hooks.aws_clients import AwsClients

log = logging.getLogger(__name__)

_PAGE_SIZE = 100
_REJECTIONS = ("ValidationException", "AccessDeniedException")


class ModelRegistry:
    """Model packages of one account and region."""

    def __init__(self, clients: AwsClients) -> None:
        self._client = clients.client("sagemaker")

    def ensure_version(self, version: ModelVersion) -> tuple[str, bool]:
        """Return the ARN of the registered version, and whether this call created it.

        A version with the same description in the group counts as the same version. The client token of the request
        prevents a second version only until the token expires, and a task may be cleared much later.

        Raises:
            SpecError: the request violates the service's model; the error lists all faults.
            TrainingRunError: the service rejected a call.
        """
        request = render_model_package(version)
        with refusals_typed(f"model package group {version.group}"):
            self._ensure_group(version.group)
            known = self._find(version)
            if known:
                return known, False
            return package_arn(self._create(request)), True

    def name_source(self, arn: str, uri: str) -> None:
        """Set a version's SourceUri to `uri`.

        If the service rejects the call, only a warning is logged, because the version's metadata also contain
        `uri`.

        SourceUri is set in a separate call, as in the SageMaker SDK, because the Create call accepts only the ARN
        of a model or a model package in this field.
        """
        try:
            self._client.update_model_package(ModelPackageArn=arn, SourceUri=uri)
        except ClientError as error:
            log.warning("%s has no SourceUri; its metadata name %s: %s", arn, uri, error)

    def _create(self, request: dict[str, Any]) -> Mapping[str, Any]:
        """Create the version; if the service rejects a request with a model card, omit the card and log a warning.

        AWS does not publish how it checks model cards. A faulty card should not prevent the registration of a model
        whose training is already paid for.

        Raises:
            ClientError: the service rejected the version for another reason.
        """
        try:
            answer: Mapping[str, Any] = self._client.create_model_package(**request)
        except ClientError as error:
            plain = without_card(request)
            if plain is None or code_and_message(error)[0] not in _REJECTIONS:
                raise
            answer = self._create(plain)
            log.warning("The model is registered without its model card: %s", error)
        return answer

    def _ensure_group(self, group: str) -> None:
        try:
            self._client.describe_model_package_group(ModelPackageGroupName=group)
        except ClientError as error:
            if code_and_message(error)[0] not in {"ValidationException", "ResourceNotFound"}:
                raise
            create = partial(
                self._client.create_model_package_group,
                ModelPackageGroupName=group,
                ModelPackageGroupDescription="Models trained by Trainyard",
            )
            # Another run may create the group at the same time.
            answer_or_none(create, where=f"model package group {group}", is_absent=is_name_taken)

    def _find(self, version: ModelVersion) -> str | None:
        pages = self._client.get_paginator("list_model_packages").paginate(
            ModelPackageGroupName=version.group,
            SortBy="CreationTime",
            SortOrder="Descending",
            PaginationConfig={"PageSize": _PAGE_SIZE},
        )
        found = (listed_arn(page, version) for page in pages)
        return next((arn for arn in found if arn), None)
