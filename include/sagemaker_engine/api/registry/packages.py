"""Operations on model packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.registry.adding import NewPackage, TokenReusedError, add_package
from sagemaker_engine.api.registry.groups import find_group
from sagemaker_engine.api.registry.model_card import check_model_card
from sagemaker_engine.api.registry.tables import (
    ExistingRowError,
    MissingRowError,
    RegistryTables,
    SqlCondition,
)
from sagemaker_engine.api.resources import check_image_exists, split_s3_uri
from sagemaker_engine.jobs.image_digest import digest_of, manifest_of
from sagemaker_engine.wire.errors import ServiceError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.wire.json_service import Call, Handler

TABLE = "model_packages"
_REPLACED = (
    "ModelApprovalStatus",
    "ModelPackageRegistrationType",
    "ApprovalDescription",
    "InferenceSpecification",
    "SourceUri",
    "ModelCard",
    "ModelLifeCycle",
)
"""Members that UpdateModelPackage replaces as a whole."""
_OF_TYPE = {
    "Versioned": [SqlCondition(sql="group_arn IS NOT NULL")],
    "Unversioned": [SqlCondition(sql="group_arn IS NULL")],
    "Both": [],
}


@dataclass(frozen=True, slots=True)
class ModelPackages:
    """Handlers of the operations on model packages."""

    context: ApiContext
    tables: RegistryTables

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler per operation."""
        return {
            "CreateModelPackage": self.create,
            "DescribeModelPackage": self.describe,
            "BatchDescribeModelPackage": self.batch_describe,
            "ListModelPackages": self.list,
            "UpdateModelPackage": self.update,
            "DeleteModelPackage": self.delete,
        }

    def create(self, call: Call) -> dict[str, Any]:
        """Register a package: a new version in a group, or an unversioned package with its own name.

        If an earlier request had the same ClientToken and the same content, its package is returned.

        Raises:
            ValidationError: The request contradicts itself, or names a resource that does not exist.
            ServiceError: ConflictException: the token was used for another request.
        """
        request = call.request
        _check_create(request)
        check_model_card(request)
        self._check_model_data(request)
        in_group = "ModelPackageGroupName" in request
        group = find_group(self.context, self.tables, call) if in_group else None
        package = NewPackage(
            account_arn=self.context.arn(call.region, "model-package", ""),
            group=group,
            request=request,
            created_at=self.context.clock(),
        )
        try:
            return {"ModelPackageArn": add_package(self.tables.database, package)}
        except ExistingRowError as error:
            raise ValidationError(f"Model Package already exists: {error}") from error
        except TokenReusedError as error:
            raise ServiceError(
                "ConflictException",
                f"The ClientToken {request['ClientToken']} was used for another request.",
            ) from error

    def describe(self, call: Call) -> dict[str, Any]:
        """Return the package that the request identifies by name or ARN.

        Raises:
            ValidationError: The package does not exist.
        """
        return self._find(call, call.request["ModelPackageName"])

    def batch_describe(self, call: Call) -> dict[str, Any]:
        """Return several packages, and an error for each that does not exist."""
        summaries: dict[str, Any] = {}
        errors: dict[str, Any] = {}
        for arn in call.request["ModelPackageArnList"]:
            try:
                summaries[arn] = self._find(call, arn)
            except ValidationError as error:
                errors[arn] = {"ErrorCode": error.code, "ErrorResponse": error.message}
        return {
            "ModelPackageSummaries": summaries,
            "BatchDescribeModelPackageErrorMap": errors or None,
        }

    def list(self, call: Call) -> dict[str, Any]:
        """Return one page of a group's packages.

        If the request has no group, the page has the packages of the request's ModelPackageType. The default type is
        Unversioned, that is, packages without a group.
        """
        request = call.request
        conditions = []
        if "ModelPackageGroupName" in request:
            arn = find_group(self.context, self.tables, call)["ModelPackageGroupArn"]
            conditions.append(SqlCondition(sql="group_arn = ?", values=(arn,)))
        else:
            kind = request.get("ModelPackageType", "Unversioned")
            conditions.extend(_OF_TYPE[kind])
        if "ModelApprovalStatus" in request:
            status = request["ModelApprovalStatus"]
            conditions.append(SqlCondition(sql="approval = ?", values=(status,)))
        documents, token = self.tables.page(TABLE, request, conditions)
        return {"ModelPackageSummaryList": documents, "NextToken": token}

    def update(self, call: Call) -> dict[str, Any]:
        """Change a package's approval, metadata, specification or model card.

        Raises:
            ValidationError: The package does not exist, or its model card is invalid or archived.
        """
        request = call.request
        found = self._find(call, request["ModelPackageArn"])
        arn = found["ModelPackageArn"]
        check_model_card(request, known=found.get("ModelCard"))
        now = self.context.clock()

        def change(document: dict[str, Any]) -> None:
            document.update({key: request[key] for key in _REPLACED if key in request})
            metadata = {
                **document.get("CustomerMetadataProperties", {}),
                **request.get("CustomerMetadataProperties", {}),
            }
            for key in request.get("CustomerMetadataPropertiesToRemove", []):
                metadata.pop(key, None)
            if metadata or "CustomerMetadataProperties" in document:
                document["CustomerMetadataProperties"] = metadata
            added = request.get("AdditionalInferenceSpecificationsToAdd", [])
            if added:
                document.setdefault("AdditionalInferenceSpecifications", []).extend(added)
            document["LastModifiedTime"] = now
            document["LastModifiedBy"] = {}

        self.tables.change_package(arn, change)
        return {"ModelPackageArn": arn}

    def delete(self, call: Call) -> dict[str, Any]:
        """Delete the package that the request identifies by name or ARN.

        Raises:
            ValidationError: The package does not exist.
        """
        package = self._find(call, call.request["ModelPackageName"])
        self.tables.delete(TABLE, package["ModelPackageArn"])
        return {}

    def _find(self, call: Call, given: str) -> dict[str, Any]:
        is_arn = given.startswith("arn:")
        arn = given if is_arn else self.context.arn(call.region, "model-package", given)
        try:
            return self.tables.get(TABLE, arn)
        except MissingRowError as error:
            raise ValidationError(f"ModelPackage {arn} does not exist.") from error

    def _check_model_data(self, request: dict[str, Any]) -> None:
        for container in request.get("InferenceSpecification", {}).get("Containers", []):
            if "Image" in container:
                check_image_exists(self.context, container["Image"])
                self._check_digest(container)
            url = container.get("ModelDataUrl")
            if url is not None and not self.context.preconditions.has_objects(*split_s3_uri(url)):
                raise ValidationError(f"Could not find model data at {url}.")

    def _check_digest(self, container: dict[str, Any]) -> None:
        given, image = container.get("ImageDigest"), container["Image"]
        if given is None:
            return
        _, _, named = image.partition("@")
        found = named or digest_of(
            manifest_of(image, image_files=self.context.settings.image_files)
        )
        if given != found:
            raise ValidationError(
                f"ImageDigest {given} does not match image {image}; the digest of the image is {found}."
            )


def _check_create(request: dict[str, Any]) -> None:
    names = [key for key in ("ModelPackageName", "ModelPackageGroupName") if key in request]
    if len(names) != 1:
        raise ValidationError(
            "Exactly one of ModelPackageName and ModelPackageGroupName must be given; got "
            f"{' and '.join(names) or 'neither'}."
        )
    if "ModelPackageGroupName" in request and request.get("Tags"):
        raise ValidationError(
            "Tags cannot be given for a versioned model package; it uses the tags of its group."
        )
    source = request.get("SourceUri")
    if source is not None and not source.startswith("arn:"):
        raise ValidationError(
            f"SourceUri must be the ARN of a model or of a model package; got {source}. "
            "To set another address, call UpdateModelPackage."
        )
