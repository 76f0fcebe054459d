"""Operations on endpoint configurations and on endpoints.

CreateEndpoint is rejected, so no endpoint exists. Describe, List and Delete are supported nevertheless, because clients
call them during clean-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.registry.descriptions import Descriptions
from sagemaker_engine.api.registry.models import models_of
from sagemaker_engine.wire.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.api.registry.tables import RegistryTables
    from sagemaker_engine.wire.json_service import Call, Handler

_TABLE = "endpoint_configs"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Handlers of the operations on endpoint configurations and endpoints."""

    context: ApiContext
    tables: RegistryTables

    def __post_init__(self) -> None:
        """Create the table of endpoint configurations."""
        self.tables.create_plain(_TABLE)

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler per operation."""
        return {
            "CreateEndpointConfig": self.create_config,
            "DescribeEndpointConfig": self.describe_config,
            "ListEndpointConfigs": self.list_configs,
            "DeleteEndpointConfig": self.delete_config,
            "DescribeEndpoint": self.find,
            "ListEndpoints": self.list,
            "DeleteEndpoint": self.find,
        }

    def create_config(self, call: Call) -> dict[str, Any]:
        """Store a configuration after checking that its models exist.

        Raises:
            ValidationError: A model does not exist, or the name is taken.
        """
        models = models_of(self.context, self.tables)
        for member in ("ProductionVariants", "ShadowProductionVariants"):
            for variant in call.request.get(member, []):
                if "ModelName" in variant:
                    models.find(call, variant["ModelName"])
        return self.configs.create(call, call.request)

    def describe_config(self, call: Call) -> dict[str, Any]:
        """Return the endpoint configuration that the request names.

        Raises:
            ValidationError: The configuration does not exist.
        """
        return self.configs.find(call, call.request["EndpointConfigName"])

    def list_configs(self, call: Call) -> dict[str, Any]:
        """Return one page of configurations."""
        configs, token = self.configs.page(call)
        return {"EndpointConfigs": configs, "NextToken": token}

    def delete_config(self, call: Call) -> dict[str, Any]:
        """Delete the endpoint configuration that the request names.

        Raises:
            ValidationError: The configuration does not exist.
        """
        return self.configs.delete(call)

    def find(self, call: Call) -> dict[str, Any]:
        """Report that the endpoint does not exist.

        Raises:
            ValidationError: Always.
        """
        arn = self.context.arn(call.region, "endpoint", call.request["EndpointName"])
        raise ValidationError(f'Could not find endpoint "{arn}".')

    def list(self, _: Call) -> dict[str, Any]:
        """Return an empty list."""
        return {"Endpoints": []}

    @property
    def configs(self) -> Descriptions:
        """Return the stored configurations."""
        return Descriptions(
            context=self.context,
            tables=self.tables,
            table=_TABLE,
            noun="endpoint configuration",
            member="EndpointConfig",
            kind="endpoint-config",
        )
