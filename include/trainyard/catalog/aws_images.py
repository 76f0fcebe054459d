"""AWS's images for training and serving: a dated copy of the SageMaker SDK's tables, usable without the SDK."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA_FILE = Path(__file__).with_name("aws_images.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsImages:
    """The table of `aws_images.json`, which `aws_images_from_sdk` writes.

    Attributes:
        as_of: the day on which the file was written.
        source: the SDK's release.
        images: `repository:tag` by framework, version, processor (`cpu`, `gpu`, `trainium`) and Python (empty for an
            image without Python).
        accounts: the registry's account by repository and region.
    """

    as_of: str
    source: str
    images: Mapping[str, Mapping[str, Mapping[str, Mapping[str, str]]]]
    accounts: Mapping[str, Mapping[str, str]]

    def name(
        self, framework: str, *, version: str | None, processor: str, py_version: str | None
    ) -> str:
        """Return `repository:tag` of an image.

        Raises:
            LookupError: there is no such image; the message lists the supported values.
        """
        versions = _of(self.images, framework, "framework")
        processors = _of(versions, str(version), f"{framework} version")
        pythons: Mapping[str, str] = _of(
            processors, processor, f"processor of {framework} {version}"
        )
        if py_version is None and len(pythons) == 1:
            return next(iter(pythons.values()))
        if "" in pythons:
            return pythons[""]
        return str(_of(pythons, str(py_version), f"Python of {framework} {version}"))

    def uri(self, name: str, *, region: str, dns_suffix: str) -> str:
        """Return the URI of an image in a region.

        Args:
            name: `repository:tag`.
            region: region of the job.
            dns_suffix: DNS suffix of the region's partition, such as `amazonaws.com`.

        Raises:
            LookupError: AWS has no registry for the image in the region.
        """
        accounts = self.accounts[name.partition(":")[0]]
        return f"{_of(accounts, region, f'region of the image {name}')}.dkr.ecr.{region}.{dns_suffix}/{name}"


@cache
def aws_images(path: Path = DATA_FILE) -> AwsImages:
    """Return the tables of the data file. A process reads each file only once."""
    data = json.loads(path.read_text(encoding="utf-8"))
    registries = data.pop("registries")
    accounts = {name: registries[index] for name, index in data.pop("accounts").items()}
    return AwsImages(accounts=accounts, **data)


def _of(known: Mapping[str, Any], wanted: str, what: str) -> Any:
    if wanted in known:
        return known[wanted]
    supported = ", ".join(sorted(known, key=_in_order)) or "none"
    raise LookupError(f"{wanted} is not a known {what}; supported: {supported}")


def _in_order(name: str) -> tuple[list[int], str]:
    return [int(part) for part in re.findall(r"\d+", name)], name
