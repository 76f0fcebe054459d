"""Elastic Container Registry: BatchGetImage for the images that the engine knows. No image can be pulled or pushed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.images.aws_images import aws_images
from sagemaker_engine.jobs.image_digest import MEDIA_TYPE, content_of, digest_of, manifest
from sagemaker_engine.jobs.images import UnknownImageError, check_exists, has_repository
from sagemaker_engine.wire.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from sagemaker_engine.wire.json_service import Call, Handler

_DIGEST = re.compile(r"[a-zA-Z0-9_+.-]+:[a-fA-F0-9]+")
_REASONS = {
    "MissingDigestAndTag": "Invalid request parameters: both tag and digest cannot be null",
    "InvalidImageDigest": "Invalid request parameters: image digest should satisfy the regex "
    "'[a-zA-Z0-9-_+.]+:[a-fA-F0-9]+'",
    "ImageNotFound": "Requested image not found",
    "ImageTagDoesNotMatchDigest": "Image tag and image digest do not match",
}
"""Failure code -> reason."""


class _FailureError(Exception):
    """An image that cannot be returned; the argument is the failure code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRegistry:
    """Handlers of the registry.

    `account` is the registry id for requests without `registryId`. `image_files` is the images folder.
    """

    account: str
    image_files: Path

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler per operation."""
        return {"BatchGetImage": self.batch_get_image}

    def batch_get_image(self, call: Call) -> dict[str, Any]:
        """Return the images of a repository, and a failure for each image that cannot be returned.

        Raises:
            ServiceError: RepositoryNotFoundException: the registry lacks the repository.
        """
        registry = call.request.get("registryId", self.account)
        name = call.request["repositoryName"]
        suffix = "amazonaws.com.cn" if call.region.startswith("cn-") else "amazonaws.com"
        uri = f"{registry}.dkr.ecr.{call.region}.{suffix}/{name}"
        if not has_repository(uri, image_files=self.image_files):
            raise ServiceError(
                "RepositoryNotFoundException",
                f"The repository with name '{name}' does not exist in the registry with id '{registry}'",
            )
        images, failures = [], []
        for wanted in call.request["imageIds"]:
            try:
                found = self._find(uri, name, wanted)
            except _FailureError as error:
                code = str(error)
                failures.append(
                    {"imageId": wanted, "failureCode": code, "failureReason": _REASONS[code]}
                )
            else:
                images.append({"registryId": registry, "repositoryName": name, **found})
        return {"images": images, "failures": failures}

    def _find(self, uri: str, name: str, wanted: Mapping[str, str]) -> dict[str, Any]:
        tag, digest = wanted.get("imageTag"), wanted.get("imageDigest")
        if digest is not None and not _DIGEST.fullmatch(digest):
            raise _FailureError("InvalidImageDigest")
        if tag is None and digest is None:
            raise _FailureError("MissingDigestAndTag")
        if tag is not None and not self._has(f"{uri}:{tag}"):
            raise _FailureError("ImageNotFound")
        content = content_of(f"{uri}:{tag}" if tag else uri, image_files=self.image_files)
        for each in [tag] if tag else _tags(name):
            text = manifest(name, each, content)
            if digest in {None, digest_of(text)}:
                return {
                    "imageId": {"imageDigest": digest_of(text), "imageTag": each},
                    "imageManifest": text,
                    "imageManifestMediaType": MEDIA_TYPE,
                }
        raise _FailureError("ImageTagDoesNotMatchDigest" if tag else "ImageNotFound")

    def _has(self, uri: str) -> bool:
        try:
            check_exists(uri, image_files=self.image_files)
        except UnknownImageError:
            return False
        return True


def _tags(repository: str) -> Iterable[str]:
    """Return a repository's tags from the table of AWS's images.

    If a request gives a digest without a tag, the digest is compared with the digests of these tags.
    """
    known = aws_images().repositories.get(repository)
    return sorted(known.tags) if known else ()
