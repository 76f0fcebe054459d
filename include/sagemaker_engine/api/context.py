"""Context of the handlers: the parts of the engine that they use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sagemaker_engine.s3.errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.plans.clock import PlanClock
    from sagemaker_engine.plans.tables import PlanTables
    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.services.moto import MotoBackend
    from sagemaker_engine.services.quotas import Quotas
    from sagemaker_engine.state.jobs import ResourceKind
    from sagemaker_engine.state.settings import EngineSettings
    from sagemaker_engine.state.store import JobStore


@dataclass(frozen=True, slots=True)
class Preconditions:
    """Resources of other services that Create operations check: objects in S3, roles in IAM."""

    objects: ObjectStore
    moto: MotoBackend

    def has_objects(self, bucket: str, prefix: str) -> bool:
        """Return whether the bucket exists and has a key with this prefix."""
        try:
            return next(iter(self.objects.list(bucket, prefix)), None) is not None
        except S3Error:
            return False

    def has_bucket(self, bucket: str) -> bool:
        """Return whether the bucket exists."""
        try:
            self.objects.head_bucket(bucket)
        except S3Error:
            return False
        return True

    def role_trust(self, role_name: str) -> str | None:
        """Return the role's trust policy as JSON, or None if the role does not exist."""
        return self.moto.role_trust(role_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """The parts of one engine that its job operations share. `clock` returns epoch seconds."""

    settings: EngineSettings
    store: JobStore
    preconditions: Preconditions
    launch: Callable[[ResourceKind, str], None]
    """Starts the runner (the process) of a stored job."""
    clock: Callable[[], float]
    quotas: Quotas
    plans: PlanTables
    plan_clock: PlanClock

    def arn(self, region: str, kind: str, name: str) -> str:
        """Return the ARN of a resource; `kind` is for example `training-job`."""
        return f"arn:aws:sagemaker:{region}:{self.settings.account}:{kind}/{name}"
