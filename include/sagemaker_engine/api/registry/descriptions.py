"""Resources that are only stored and described: create, find by name, list, delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.registry.tables import ExistingRowError, MissingRowError
from sagemaker_engine.wire.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.api.registry.tables import RegistryTables
    from sagemaker_engine.wire.json_service import Call, Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptions:
    """Stored resources of one kind: the rows of the table `table`.

    `member` is the prefix of wire names (`Model` in ModelName, ModelArn), `kind` is used in ARNs, `noun` in messages.
    """

    context: ApiContext
    tables: RegistryTables
    table: str
    member: str
    kind: str
    noun: str

    def __post_init__(self) -> None:
        """Create the table if it is missing."""
        self.tables.create_plain(self.table)

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers of Describe, List and Delete.

        Create is not among them: each kind of resource has its own Create handler, with its own checks.
        """
        return {
            f"Describe{self.member}": self.describe,
            f"List{self.member}s": self.list,
            f"Delete{self.member}": self.delete,
        }

    def create(self, call: Call, document: dict[str, Any]) -> dict[str, Any]:
        """Store a new resource with the request's name and return Create's response.

        Raises:
            ValidationError: The name is taken.
        """
        name = call.request[f"{self.member}Name"]
        arn = self.context.arn(call.region, self.kind, name)
        now = self.context.clock()
        stored = {key: value for key, value in document.items() if key != "Tags"}
        stored |= {f"{self.member}Arn": arn, "CreationTime": now}
        tags = call.request.get("Tags", [])
        try:
            self.tables.add(self.table, arn, name, stored, tags=tags, at=now)
        except ExistingRowError as error:
            raise ValidationError(f'Cannot create already existing {self.noun} "{arn}".') from error
        return {f"{self.member}Arn": arn}

    def find(self, call: Call, name: str) -> dict[str, Any]:
        """Return a resource by name.

        Raises:
            ValidationError: The resource does not exist.
        """
        arn = self.context.arn(call.region, self.kind, name)
        try:
            return self.tables.get(self.table, arn)
        except MissingRowError as error:
            raise ValidationError(f'Could not find {self.noun} "{arn}".') from error

    def describe(self, call: Call) -> dict[str, Any]:
        """Return the resource that the request names.

        Raises:
            ValidationError: The resource does not exist.
        """
        return self.find(call, call.request[f"{self.member}Name"])

    def list(self, call: Call) -> dict[str, Any]:
        """Return one page of resources, newest first by default."""
        order = {"SortOrder": "Descending", **call.request}
        documents, token = self.tables.page(self.table, order)
        return {f"{self.member}s": documents, "NextToken": token}

    def delete(self, call: Call) -> dict[str, Any]:
        """Delete the resource that the request names.

        Raises:
            ValidationError: The resource does not exist.
        """
        self.tables.delete(self.table, self.describe(call)[f"{self.member}Arn"])
        return {}
