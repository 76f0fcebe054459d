"""Operations on model package groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.registry.tables import ExistingRowError, MissingRowError, RegistryTables
from sagemaker_engine.wire.errors import ServiceError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.wire.json_service import Call, Handler

TABLE = "model_package_groups"


@dataclass(frozen=True, slots=True)
class ModelPackageGroups:
    """Handlers of the operations on model package groups."""

    context: ApiContext
    tables: RegistryTables

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler per operation."""
        return {
            "CreateModelPackageGroup": self.create,
            "DescribeModelPackageGroup": self.describe,
            "ListModelPackageGroups": self.list,
            "DeleteModelPackageGroup": self.delete,
        }

    def create(self, call: Call) -> dict[str, Any]:
        """Create a group.

        Raises:
            ValidationError: A group with this name exists.
        """
        name = call.request["ModelPackageGroupName"]
        arn = self.context.arn(call.region, "model-package-group", name)
        now = self.context.clock()
        document = {
            **{key: value for key, value in call.request.items() if key != "Tags"},
            "ModelPackageGroupArn": arn,
            "CreationTime": now,
            "CreatedBy": {},
            "ModelPackageGroupStatus": "Completed",
        }
        tags = call.request.get("Tags", [])
        try:
            self.tables.add(TABLE, arn, name, document, tags=tags, at=now)
        except ExistingRowError as error:
            raise ValidationError(f"Model Package Group already exists: {arn}") from error
        return {"ModelPackageGroupArn": arn}

    def describe(self, call: Call) -> dict[str, Any]:
        """Return the group that the request identifies by name or ARN.

        Raises:
            ValidationError: The group does not exist.
        """
        return find_group(self.context, self.tables, call)

    def list(self, call: Call) -> dict[str, Any]:
        """Return one page of groups."""
        documents, token = self.tables.page(TABLE, call.request)
        return {"ModelPackageGroupSummaryList": documents, "NextToken": token}

    def delete(self, call: Call) -> dict[str, Any]:
        """Delete an empty group.

        Raises:
            ValidationError: The group does not exist.
            ServiceError: ConflictException: the group has packages.
        """
        arn = find_group(self.context, self.tables, call)["ModelPackageGroupArn"]
        if not self.tables.delete_group(arn):
            raise ServiceError(
                "ConflictException",
                f"Model Package Group {arn} cannot be deleted while it contains model packages.",
            )
        return {}


def find_group(context: ApiContext, tables: RegistryTables, call: Call) -> dict[str, Any]:
    """Return the group that the request identifies by ARN or name.

    Raises:
        ValidationError: The group does not exist.
    """
    given = call.request["ModelPackageGroupName"]
    is_arn = given.startswith("arn:")
    arn = given if is_arn else context.arn(call.region, "model-package-group", given)
    try:
        return tables.get(TABLE, arn)
    except MissingRowError as error:
        raise ValidationError(f"ModelPackageGroup {arn} does not exist.") from error
