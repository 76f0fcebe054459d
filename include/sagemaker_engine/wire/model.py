"""Service models: operations and shapes as botocore ships them."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Shape = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceModel:
    """The operations and shapes of one service, as written in its `service-2.json`."""

    name: str
    target_prefix: str
    """Prefix of X-Amz-Target; empty for a service that identifies operations by method and path."""
    signing_name: str
    operations: dict[str, Shape]
    shapes: dict[str, Shape]

    def input_shape(self, operation: str) -> str:
        """Return the name of the operation's input shape."""
        return str(self.operations[operation]["input"]["shape"])

    def output_shape(self, operation: str) -> str | None:
        """Return the name of the operation's output shape, or None if it has none."""
        output = self.operations[operation].get("output")
        return None if output is None else str(output["shape"])


def models_signed_as(signing_name: str) -> list[ServiceModel]:
    """Return the models of all services that sign as `signing_name`.

    Worked: both `sagemaker` and `sagemaker-runtime` sign as `sagemaker`.

    Raises FileNotFoundError if botocore is not installed.
    """
    names = sorted(path.name for path in _data_folder().glob(f"{signing_name}*"))
    return [model for model in map(load_model, names) if model.signing_name == signing_name]


@cache
def load_model(service: str) -> ServiceModel:
    """Return the newest model of a service such as `sagemaker` (0.03 s at the first call, then cached).

    Raises:
        FileNotFoundError: botocore is not installed or has no model of that service.
    """
    folder = _data_folder() / service
    versions = sorted(path for path in folder.glob("*/service-2.json*"))
    if not versions:
        raise FileNotFoundError(
            f"botocore has no model of the service {service!r}: no service-2.json under {folder}"
        )
    data = versions[-1].read_bytes()
    document = json.loads(gzip.decompress(data) if versions[-1].suffix == ".gz" else data)
    metadata = document["metadata"]
    return ServiceModel(
        name=service,
        target_prefix=metadata.get("targetPrefix", ""),
        signing_name=metadata.get("signingName", metadata["endpointPrefix"]),
        operations=document["operations"],
        shapes=document["shapes"],
    )


def _data_folder() -> Path:
    spec = find_spec("botocore")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            "botocore is not installed; install it, because the engine reads its service models"
        )
    return Path(spec.origin).parent / "data"
