"""Context of the handlers: the parts of the engine that they use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.services.quotas import Quotas
    from sagemaker_engine.state.settings import EngineSettings
    from sagemaker_engine.state.store import JobStore, ResourceKind


class Preconditions(Protocol):
    """State outside the request that Create operations check."""

    def has_objects(self, bucket: str, prefix: str) -> bool:
        """Return whether the bucket exists and has a key with this prefix."""

    def has_bucket(self, bucket: str) -> bool:
        """Return whether the bucket exists."""

    def role_trust(self, role_name: str) -> str | None:
        """Return the role's trust policy as JSON, or None if the role does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """The parts of one engine that its job operations share. `clock` returns epoch seconds."""

    settings: EngineSettings
    store: JobStore
    preconditions: Preconditions
    launch: Callable[[ResourceKind, str], None]
    """Starts the runner of a stored job."""
    clock: Callable[[], float]
    quotas: Quotas

    def arn(self, region: str, kind: str, name: str) -> str:
        """Return the ARN of a resource; `kind` is for example `training-job`."""
        return f"arn:aws:sagemaker:{region}:{self.settings.account}:{kind}/{name}"
