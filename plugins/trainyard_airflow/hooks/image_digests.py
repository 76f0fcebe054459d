"""Existence and digests of container images, from Elastic Container Registry."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.errors import Finding, Severity, shortened
from trainyard_airflow.hooks.refusals import code_and_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainyard_airflow.hooks.aws_clients import AwsClients

log = logging.getLogger(__name__)

_IMAGE = re.compile(
    r"(?P<registry>\d{12})\.dkr\.ecr(?:-fips)?\.[a-z0-9-]+\.[a-z0-9.-]+/"
    r"(?P<repository>[^:@]+)(?::(?P<tag>[^:@]+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDigest:
    """Digest of an image, `sha256:...`, or the reason why it is not known, on one line."""

    value: str | None = None
    why_unknown: str | None = None

    def facts(self) -> dict[str, str]:
        """Return the digest as `image_digest`, or the reason as `image_digest_unknown`, for a task's result."""
        if self.value is not None:
            return {"image_digest": self.value}
        return {"image_digest_unknown": self.why_unknown or ""}


def image_digest(clients: AwsClients, uri: str) -> ImageDigest:
    """Return the digest of an image. If it cannot be read, only a warning is logged, because no job needs a digest.

    Args:
        clients: clients of a connection with `ecr:BatchGetImage`, the permission that every pull needs. AWS's own
            registries grant it to all accounts.
        uri: URI of the image; if it contains a digest, no call is made.
    """
    _, _, named = uri.partition("@")
    if named:
        return ImageDigest(value=named)
    image = _IMAGE.fullmatch(uri)
    if image is None:
        return _unknown(uri, "the image is not in an Elastic Container Registry")
    try:
        answer = clients.impatient_client("ecr").batch_get_image(
            registryId=image["registry"],
            repositoryName=image["repository"],
            imageIds=[{"imageTag": image["tag"] or "latest"}],
        )
    except (ClientError, BotoCoreError) as error:
        return _unknown(uri, str(error))
    if answer["images"]:
        return ImageDigest(value=answer["images"][0]["imageId"]["imageDigest"])
    reasons = (f"{e['failureCode']}: {e['failureReason']}" for e in answer["failures"])
    return _unknown(uri, next(reasons, "the registry returned no image"))


def image_findings(
    clients: AwsClients, uris: Iterable[str], *, where: str = "image_uri"
) -> Iterator[Finding]:
    """Yield an error for each image that its registry does not have; a warning for each that cannot be checked.

    Images outside of Elastic Container Registry are not checked.
    """
    for uri in dict.fromkeys(uris):
        image = _IMAGE.fullmatch(uri.partition("@")[0])
        if image is not None:
            yield from _absent_image(clients, uri, image, where)


def _absent_image(
    clients: AwsClients, uri: str, image: re.Match[str], where: str
) -> Iterator[Finding]:
    digest = uri.partition("@")[2]
    wanted = {"imageDigest": digest} if digest else {"imageTag": image["tag"] or "latest"}
    missing = Finding(
        where=where,
        what="does not exist in its registry",
        got=uri,
        next_step="correct the image or its tag, or push the image to this region",
    )
    try:
        answer = clients.impatient_client("ecr").batch_get_image(
            registryId=image["registry"], repositoryName=image["repository"], imageIds=[wanted]
        )
    except ClientError as error:
        if code_and_message(error)[0] == "RepositoryNotFoundException":
            yield missing
        else:
            yield _unchecked(uri, error, where)
    except BotoCoreError as error:
        yield _unchecked(uri, error, where)
    else:
        if not answer["images"]:
            yield missing


def _unchecked(uri: str, error: Exception, where: str) -> Finding:
    return Finding(
        where=where,
        what=f"cannot be checked: {shortened(' '.join(str(error).split()), limit=300)}",
        got=uri,
        next_step="allow Airflow's identity to call ecr:BatchGetImage on the repository",
        severity=Severity.WARNING,
    )


def _unknown(uri: str, why: str) -> ImageDigest:
    why = shortened(" ".join(why.split()), limit=300)
    log.warning("The digest of image %s is not known: %s", uri, why)
    return ImageDigest(why_unknown=why)
