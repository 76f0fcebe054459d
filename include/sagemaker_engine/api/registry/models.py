"""Operations on models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.registry.descriptions import Descriptions
from sagemaker_engine.api.resources import check_image_exists, check_role, split_s3_uri
from sagemaker_engine.wire.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.api.registry.tables import RegistryTables
    from sagemaker_engine.wire.json_service import Call, Handler


@dataclass(frozen=True, slots=True)
class Models:
    """Handlers of the operations on models. The engine stores models and serves none."""

    context: ApiContext
    stored: Descriptions

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler per operation."""
        return {"CreateModel": self.create, **self.stored.handlers()}

    def create(self, call: Call) -> dict[str, Any]:
        """Store a model after checking that its role, images and model data exist.

        Raises:
            ValidationError: The request contradicts itself, a resource does not exist, or the name is taken.
        """
        request = call.request
        given = [key for key in ("PrimaryContainer", "Containers") if request.get(key)]
        if len(given) != 1:
            raise ValidationError(
                "You must provide either a PrimaryContainer or Containers, and not both; got "
                f"{' and '.join(given) or 'neither'}."
            )
        if "ExecutionRoleArn" in request:
            check_role(self.context, request["ExecutionRoleArn"])
        for container in request.get("Containers") or [request["PrimaryContainer"]]:
            self._check_container(container)
        document = {"EnableNetworkIsolation": False, **request}
        return self.stored.create(call, document)

    def _check_container(self, container: dict[str, Any]) -> None:
        sources = [key for key in ("Image", "ModelPackageName") if container.get(key)]
        if len(sources) != 1:
            raise ValidationError(
                "A container must have exactly one of Image and ModelPackageName; got "
                f"{' and '.join(sources) or 'neither'}."
            )
        if "Image" in container:
            check_image_exists(self.context, container["Image"])
        source = container.get("ModelDataSource", {}).get("S3DataSource", {})
        for url in filter(None, (container.get("ModelDataUrl"), source.get("S3Uri"))):
            if not self.context.preconditions.has_objects(*split_s3_uri(url)):
                raise ValidationError(f"Could not find model data at {url}.")


def models_of(context: ApiContext, tables: RegistryTables) -> Descriptions:
    """Return the stored models."""
    return Descriptions(
        context=context, tables=tables, table="models", noun="model", member="Model", kind="model"
    )
