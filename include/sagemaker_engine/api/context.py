"""Surroundings of the handlers: the parts of the engine that they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.services.quotas import Quotas
    from sagemaker_engine.state.settings import EngineSettings
    from sagemaker_engine.state.store import JobStore, ResourceKind


class Preconditions(Protocol):
    """State outside the request that a Create checks."""

    def has_objects(self, bucket: str, prefix: str) -> bool:
        """Return whether the bucket exists and holds a key with this prefix."""

    def has_bucket(self, bucket: str) -> bool:
        """Return whether the bucket exists."""

    def role_trust(self, role_name: str) -> str | None:
        """Return the role's trust policy as JSON, None when there is no such role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """The parts of one engine that its job operations share."""

    settings: EngineSettings
    store: JobStore
    preconditions: Preconditions
    launch: Callable[[ResourceKind, str], None]
    """Starts the runner of a job that is in the store."""
    clock: Callable[[], float]
    quotas: Quotas

    def arn(self, region: str, kind: str, name: str) -> str:
        """Return the ARN of a resource such as `training-job` of a name."""
        return f"arn:aws:sagemaker:{region}:{self.settings.account}:{kind}/{name}"
