"""Checks a request against botocore's model: what botocore itself leaves to the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def validate_request(operation: str, request: Mapping[str, Any]) -> None:
    """Do nothing when the service's model allows the request.

    Checks required members, unknown members (naming the nearest), types, enums, patterns and both limits.

    Raises:
        SpecError: every fault at once, each with its path (`ResourceConfig.InstanceType`).
    """
    raise NotImplementedError
