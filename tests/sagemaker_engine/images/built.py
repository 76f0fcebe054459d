"""Real environments, for tests that need one: built on first use, skipped only where no package index is reached."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.images.environment import BuildError
from sagemaker_engine.images.image_file import read_image_files
from sagemaker_engine.images.image_store import ImageStore, default_folder
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from sagemaker_engine.images.image_file import ImageFile

ASK_INDEX = ["-m", "pip", "index", "versions", "pip", "--retries", "0", "--timeout", "15"]


def need_image(name: str) -> Path:
    """Return the folder of an engine image, built unless it was there."""
    image = next(each for each in read_image_files() if each.name == name)
    return need_built(ImageStore(folder=default_folder()), image)


def need_built(store: ImageStore, image: ImageFile) -> Path:
    """Return where the image is, built unless it was there.

    Where that fails, the test is skipped if pip cannot find any version of itself either: there is no index then. Else
    it fails: a pin is wrong, or what a build takes is missing.
    """
    try:
        return store.build(image, on_progress=print)
    except BuildError as error:
        if has_index():
            pytest.fail(f"{image.name} cannot be built, though there is a package index: {error}")
        pytest.skip(f"{image.name} cannot be built, no package index can be reached: {error}")


def has_index() -> bool:
    """Tell whether pip, as it is set up here, reaches an index of packages."""
    asked = subprocess.run(
        [sys.executable, *ASK_INDEX],
        capture_output=True,
        check=False,
        timeout=EVENT_LIMIT_S,
    )
    return asked.returncode == 0
