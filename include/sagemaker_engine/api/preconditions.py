"""State that Create requests are checked against: objects in S3, roles in IAM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sagemaker_engine.s3.errors import S3Error

if TYPE_CHECKING:
    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.services.moto import MotoBackend


@dataclass(frozen=True, slots=True)
class EnginePreconditions:
    """Objects and roles in this engine's own S3 and IAM."""

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
