"""Default training images: pinned versions in the dated data file beside this module.

The SageMaker SDK's own default moves with the SDK. A pinned one changes only with this file, so that an upgrade of a
dependency never changes the framework that a training runs on.
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
        as_of: the day on which the file was compared with its sources.
        versions: any other framework to the version that its image has by default.
        pytorch: AWS's PyTorch image, the default of every job.
    """

    as_of: str
    versions: Mapping[str, str]
    pytorch: PinnedImage

    def version(self, framework: str) -> str | None:
        """Return the version of a framework's default image; None if the SDK chooses it."""
        return self.pytorch.version if framework == "pytorch" else self.versions.get(framework)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedImage:
    """One image of AWS's in all its registries.

    Attributes:
        version: of the framework, as the tags begin.
        py_version: of the Python in it, as the estimators write it (`py312`).
        repository: name in the registry.
        tags: "cpu" and "gpu" to the tag.
        accounts: region to the registry's account.
    """

    version: str
    py_version: str
    repository: str
    tags: Mapping[str, str]
    accounts: Mapping[str, str]

    def has_version(self, version: str | None) -> bool:
        """Return whether this is the image of a framework version; None asks for the default, which it is."""
        return version is None or version == self.version or version.startswith(f"{self.version}.")

    def uri(self, *, region: str, processor: str, dns_suffix: str) -> str:
        """Return the image's URI in a region.

        Args:
            region: a key of `accounts`.
            processor: a key of `tags`.
            dns_suffix: of the region's partition, such as `amazonaws.com`.

        Raises:
            KeyError: AWS has no registry of these images there.
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
