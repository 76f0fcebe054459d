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
        versions: default version of each framework. AWS's PyTorch image is the default of jobs that set neither image
            nor framework.
        pytorch_python: Python version of the default PyTorch image, in the form of the SDK's estimators (`py312`).
    """

    versions: Mapping[str, str]
    pytorch_python: str

    def is_default_pytorch(self, version: str | None) -> bool:
        """Return whether the default image has this version of PyTorch; True for None, the default version."""
        default = self.versions["pytorch"]
        return version is None or version == default or version.startswith(f"{default}.")


@cache
def training_images(path: Path = DATA_FILE) -> TrainingImages:
    """Return the default images, read from the data file once."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return TrainingImages(versions=data["versions"], pytorch_python=data["pytorch_python"])
