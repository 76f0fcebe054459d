"""The example on folders of images: pixels and labels are those of the files."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

pytestmark = pytest.mark.torch
EXAMPLE = Path(__file__).parents[2] / "docs/examples/own/images"
EXIF_ORIENTATION, QUARTER_TURN = 0x0112, 6


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType]]:
    """Return train.py and evaluate.py of the example."""
    monkeypatch.syspath_prepend(EXAMPLE)
    for name in ("train", "evaluate"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("train"), importlib.import_module("evaluate")
    for name in ("train", "evaluate"):
        del sys.modules[name]


def save(folder: Path, name: str, image: Image.Image, **options: object) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    image.save(folder / name, **options)


def gray(level: int) -> Image.Image:
    return Image.fromarray(np.full((8, 8, 3), level, np.uint8))


def test_accuracy_is_that_of_the_model_when_the_test_data_lack_a_class(
    scripts: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    train, evaluate = scripts
    for name in ("dog", "owl"):
        save(tmp_path, f"{name}/a.png", gray(100))
    weights = train.resnet(3).state_dict()
    weights["5.bias"][2] = 100.0  # owl, for every image

    metrics = evaluate.evaluate({"classes": ["cat", "dog", "owl"], "weights": weights}, tmp_path)

    assert metrics == {"accuracy": 0.5}


def test_a_class_that_the_model_does_not_know_is_refused(
    scripts: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    train, evaluate = scripts
    save(tmp_path, "Owl/a.png", gray(100))
    saved = {"classes": ["cat", "owl"], "weights": train.resnet(2).state_dict()}
    with pytest.raises(ValueError, match=r"Owl.*allowed: cat, owl"):
        evaluate.evaluate(saved, tmp_path)


def test_a_folder_without_images_is_refused(
    scripts: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    train, _ = scripts
    with pytest.raises(ValueError, match="no image"):
        train.ImageFolder(tmp_path)


def test_sixteen_bit_images_keep_their_shades(
    scripts: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    train, _ = scripts
    shades = (np.arange(train.SIZE**2) * 64 % 65536).astype(np.uint16)
    image = Image.fromarray(shades.reshape(train.SIZE, train.SIZE))
    save(tmp_path, "x/a.png", image)
    pixels, _ = train.ImageFolder(tmp_path)[0]
    found = pixels[0].numpy().ravel()
    assert np.abs(found - shades / 65535).max() <= 1 / 255


def test_images_of_another_range_are_refused(
    scripts: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    train, _ = scripts
    save(tmp_path, "x/a.tif", Image.fromarray(np.full((8, 8), 0.5, np.float32)))
    with pytest.raises(ValueError, match=r"a\.tif.*mode F"):
        train.ImageFolder(tmp_path)[0]


def test_photos_are_turned_as_their_exif_says(
    scripts: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    train, _ = scripts
    half = np.zeros((train.SIZE, train.SIZE, 3), np.uint8)
    half[:, : train.SIZE // 2] = 255  # the left half, which the camera's turn makes the upper one
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = QUARTER_TURN
    save(tmp_path, "x/a.png", Image.fromarray(half), exif=exif)
    pixels, _ = train.ImageFolder(tmp_path)[0]
    upper, lower = pixels[:, : train.SIZE // 2], pixels[:, train.SIZE // 2 :]
    assert (float(upper.min()), float(lower.max())) == (1.0, 0.0)
