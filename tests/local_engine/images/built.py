"""The real engine images, for tests that need one: built on first use, skipped only where they cannot be."""

from __future__ import annotations

import pytest

from include.local_engine.images.environment import BuildError
from include.local_engine.images.image_file import read_image_files
from include.local_engine.images.image_store import ImageStore, default_folder


def need_image(name: str) -> None:
    """Build the image unless it is there; skip the test, with what pip said, where that is not possible."""
    image = next(each for each in read_image_files() if each.name == name)
    try:
        ImageStore(folder=default_folder()).build(image, say=print)
    except BuildError as error:
        pytest.skip(f"engine image {name} cannot be built here: {error}")
