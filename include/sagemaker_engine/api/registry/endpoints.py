"""Operations on endpoint configurations and on endpoints.

CreateEndpoint is rejected, so no endpoint exists. Describe, List and Delete are supported nevertheless, because clients
call them during clean-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.registry.descriptions import Descriptions
from sagemaker_engine.wire.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.api.registry.tables import RegistryTables
    from sagemaker_engine.wire.json_service import Call, Handler


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Handlers of the operations on endpoint configurations and endpoints."""

    context: ApiContext
    configs: Descriptions
    models: Descriptions

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler per operation."""
        return {
            "CreateEndpointConfig": self.create_config,
            **self.configs.handlers(),
            "DescribeEndpoint": self.find,
            "ListEndpoints": self.list,
            "DeleteEndpoint": self.find,
        }

    def create_config(self, call: Call) -> dict[str, Any]:
        """Store a configuration after checking that its models exist.

        Raises:
            ValidationError: A model does not exist, or the name is taken.
        """
        for member in ("ProductionVariants", "ShadowProductionVariants"):
            for variant in call.request.get(member, []):
                if "ModelName" in variant:
                    self.models.find(call, variant["ModelName"])
        return self.configs.create(call, call.request)

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


def configs_of(context: ApiContext, tables: RegistryTables) -> Descriptions:
    """Return the stored endpoint configurations."""
    return Descriptions(
        context=context,
        tables=tables,
        table="endpoint_configs",
        noun="endpoint configuration",
        member="EndpointConfig",
        kind="endpoint-config",
    )
