"""The permissions of an engine that tests put and read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import requests

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

AIRFLOW = "test-login"
"""The access key of the tests' connection."""


@dataclass(slots=True)
class EngineAccess:
    """The route `/_engine/access` of an engine; `expected` are actions that a test wants to be refused."""

    engine: RunningEngine
    expected: set[str] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Address of the route."""
        return f"{self.engine.endpoint_url}/_engine/access"

    def put(
        self, *, airflow: dict[str, Any], role: dict[str, Any], guard_rails: tuple[Any, ...] = ()
    ) -> None:
        """Give Airflow's identity and the execution role one policy each, and the account its guard rails."""
        identities = {AIRFLOW: [airflow], self.engine.role_arn: [role]}
        document = {"identities": identities, "guard_rails": list(guard_rails)}
        answer = requests.put(self.url, json=document, timeout=30)
        assert answer.ok, answer.text

    def clear(self) -> None:
        """End all policies and counts."""
        requests.delete(self.url, timeout=30).raise_for_status()

    def denied(self, identity: str = AIRFLOW) -> set[str]:
        """Return what the identity was refused."""
        return set(requests.get(self.url, timeout=30).json()["denied"].get(identity, {}))

    def actions(self, identity: str = AIRFLOW) -> set[str]:
        """Return what the identity has asked for."""
        return set(requests.get(self.url, timeout=30).json()["calls"].get(identity, {}))
