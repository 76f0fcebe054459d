"""Default training images: pinned versions in the dated data file beside this module.

The SageMaker SDK's own default changes with the SDK. The pinned default changes only with this file, so an upgrade of a
dependency never changes the framework of a training.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA_FILE = Path(__file__).with_name("training_images.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingImages:
    """The default images.

    Attributes:
        as_of: date of the last comparison of the file with its sources.
        versions: default version of each framework other than PyTorch.
        pytorch: AWS's PyTorch image, the default of jobs that set neither image nor framework.
    """

    as_of: str
    versions: Mapping[str, str]
    pytorch: PinnedImage

    def version(self, framework: str) -> str | None:
        """Return the version of a framework's default image; None if the SDK chooses it."""
        return self.pytorch.version if framework == "pytorch" else self.versions.get(framework)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedImage:
    """One AWS image in all of its registries.

    Attributes:
        version: the framework's version, with which the tags begin.
        py_version: the Python version, in the form of the SDK's estimators (`py312`).
        repository: name of the repository in the registry.
        tags: tags by processor, "cpu" and "gpu".
        accounts: accounts of the registries by region.
    """

    version: str
    py_version: str
    repository: str
    tags: Mapping[str, str]
    accounts: Mapping[str, str]

    def has_version(self, version: str | None) -> bool:
        """Return whether this is the image of a framework version; True for None, the default version."""
        return version is None or version == self.version or version.startswith(f"{self.version}.")

    def uri(self, *, region: str, processor: str, dns_suffix: str) -> str:
        """Return the image's URI in a region.

        Args:
            region: a key of `accounts`.
            processor: a key of `tags`.
            dns_suffix: DNS suffix of the region's partition, such as `amazonaws.com`.

        Raises:
            KeyError: AWS has no registry for these images in the region.
        """
        registry = f"{self.accounts[region]}.dkr.ecr.{region}.{dns_suffix}"
        return f"{registry}/{self.repository}:{self.tags[processor]}"


@cache
def training_images(path: Path = DATA_FILE) -> TrainingImages:
    """Return the default images, read from the data file once."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return TrainingImages(
        as_of=data["as_of"], versions=data["versions"], pytorch=PinnedImage(**data["pytorch"])
    )
