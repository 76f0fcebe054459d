"""AWS's container images: repositories, tags and the accounts of registries, from a dated data file.

The file is the engine's own copy of AWS's published tables; `aws_images_from_sdk` writes it. A tag is
accepted if it is in the file. It is also accepted if it is such a tag with suffixes for the CUDA version,
operating system, platform, patch version or date. For example,
`2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker` is the tag `2.8.0-gpu-py312` with three suffixes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA_FILE = Path(__file__).with_name("aws_images.json")
PUBLIC_REGISTRY = "public.ecr.aws/deep-learning-containers"
PUBLISHED_WITH = "pytorch"
"""Repositories in the same registries as this repository are deep learning containers, which are also in public ECR."""

_REFERENCE = re.compile(
    r"(?:(?P<registry>(?:[\w-]+(?:\.[\w-]+)+(?::\d+)?|[\w.-]+:\d+|localhost)(?:/deep-learning-containers)?)/)?"
    r"(?P<repository>[a-z0-9]+(?:[._\-/]+[a-z0-9]+)*)"
    r"(?::(?P<tag>\w[\w.\-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
"""An image reference: [registry/]repository[:tag][@digest]."""
_ECR = re.compile(r"(?P<account>\d{12})\.dkr\.ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.[a-z0-9.-]+")
_MORE = re.compile(
    r"(?:-cpu-py3)?(?:-(?:cu\d{3}|ubuntu\d\d\.\d\d|amzn2023|sagemaker|v\d+(?:\.\d+)*))*(?:-\d{4}(?:-\d\d){2,5})?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageName:
    """The parts of an image URI.

    Attributes:
        registry: Host before the first slash; `public.ecr.aws/deep-learning-containers` for AWS's public images; empty
            if the URI has none.
        repository: Path in the registry.
        tag: Tag, or None.
        digest: `sha256:...`, or None.
    """

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def family(self) -> str:
        """Return the last component of the repository's name."""
        return self.repository.rpartition("/")[2]

    @property
    def account(self) -> str | None:
        """Return the AWS account that owns the image's registry; None if it is not an Elastic Container Registry."""
        found = _ECR.fullmatch(self.registry)
        return found["account"] if found else None

    @property
    def region(self) -> str | None:
        """Return the region of an Elastic Container Registry, or None for another registry."""
        found = _ECR.fullmatch(self.registry)
        return found["region"] if found else None

    @property
    def is_public_aws(self) -> bool:
        """Return whether the image is in AWS's public registry of deep learning containers."""
        return self.registry == PUBLIC_REGISTRY


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """One of AWS's repositories: the account of its registry in each region, and its tags."""

    accounts: Mapping[str, str]
    tags: frozenset[str]

    def has_tag(self, tag: str) -> bool:
        """Return whether the tag is known, or is a known tag followed by a valid extension."""
        parts = tag.split("-")
        heads = ("-".join(parts[:number]) for number in range(len(parts), 0, -1))
        return any(head in self.tags and _MORE.fullmatch(tag[len(head) :]) for head in heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsRepositories:
    """All of AWS's repositories by name, as published on the date `as_of`."""

    as_of: str
    repositories: Mapping[str, Repository]

    @property
    def accounts(self) -> frozenset[str]:
        """Return all accounts that have AWS's images."""
        return frozenset(a for each in self.repositories.values() for a in each.accounts.values())

    def is_aws(self, name: ImageName) -> bool:
        """Return whether an image is in one of AWS's registries, even if it does not exist there."""
        return name.is_public_aws or name.account in self.accounts

    def problem(self, name: ImageName) -> str | None:
        """Return the reason why an image in one of AWS's registries does not exist; None if it exists."""
        problem = self.repository_problem(name)
        if problem is not None:
            return problem
        tags = self.repositories[name.repository]
        if name.digest is None and not tags.has_tag(name.tag or "latest"):
            return (
                f"repository {name.repository!r} has no tag {name.tag or 'latest'!r} "
                f"(tags known on {self.as_of} include {', '.join(_near(tags.tags, name.tag or ''))})"
            )
        return None

    def repository_problem(self, name: ImageName) -> str | None:
        """Return the reason why an image's repository does not exist in the image's registry; None if it exists.

        Call this only for an image whose registry is one of AWS's.
        """
        repository = self.repositories.get(name.repository)
        if repository is None:
            return f"AWS publishes no repository {name.repository!r} (as of {self.as_of})"
        if name.is_public_aws:
            deep_learning = self.repositories[PUBLISHED_WITH].accounts
            if not set(repository.accounts.values()) <= set(deep_learning.values()):
                return f"repository {name.repository!r} is not in AWS's public registry"
        elif repository.accounts.get(str(name.region)) != name.account:
            right = repository.accounts.get(str(name.region))
            return (
                f"the account of {name.repository!r} in {name.region} is {right}, not {name.account}"
                if right
                else f"AWS publishes {name.repository!r} in no registry of {name.region}"
            )
        return None


def read_name(uri: str) -> ImageName | None:
    """Return the parts of an image URI, or None if the text is not an image URI."""
    found = _REFERENCE.fullmatch(uri)
    if found is None:
        return None
    return ImageName(
        registry=found["registry"] or "",
        repository=found["repository"],
        tag=found["tag"],
        digest=found["digest"],
    )


@cache
def aws_images(path: Path = DATA_FILE) -> AwsRepositories:
    """Return the images of the data file, which is read only once."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return AwsRepositories(
        as_of=data["as_of"],
        repositories={
            name: Repository(
                accounts=data["registries"][each["registry"]], tags=frozenset(each["tags"])
            )
            for name, each in data["repositories"].items()
        },
    )


def _near(tags: frozenset[str], tag: str) -> list[str]:
    """Return up to four known tags to suggest for the unknown `tag`, in descending order of the numbers in them.

    They have the same version (text before the first hyphen) as `tag`. If no known tag has this version, all known
    tags are considered.
    """
    version = tag.partition("-")[0]
    ordered = sorted(tags, key=_version_key, reverse=True)
    same = [each for each in ordered if each.startswith(f"{version}-")] if version else []
    return (same or ordered)[:4]


def _version_key(tag: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", tag)]
