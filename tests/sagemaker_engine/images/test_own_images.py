"""A team's own images, mapped by a file: what stands in for them, and what is wrong with a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sagemaker_engine import IMAGES_FOLDER
from sagemaker_engine.images.image_file import OWN_IMAGES, read_own_images, stand_in
from sagemaker_engine.jobs.images import (
    PYTORCH_TRAINING,
    UnknownImageError,
    check_exists,
    resolve_image,
)

if TYPE_CHECKING:
    from pathlib import Path

OWN = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/train"


def write(folder: Path, *lines: str) -> Path:
    (folder / OWN_IMAGES).write_text("\n".join(["[images]", *lines]))
    return folder


def test_an_image_of_ones_own_is_unknown_until_the_file_maps_it(tmp_path: Path) -> None:
    with pytest.raises(UnknownImageError, match=rf"no repository 'team/train'.*{OWN_IMAGES}"):
        check_exists(f"{OWN}:2", image_files=tmp_path)

    write(tmp_path, f'"{OWN}" = "pytorch"')

    check_exists(f"{OWN}:2", image_files=tmp_path)
    assert resolve_image(f"{OWN}:2", image_files=tmp_path).training_module == PYTORCH_TRAINING


@pytest.mark.parametrize("registry", ["", "docker.io/", "localhost:5000/"])
def test_an_image_outside_aws_needs_the_file_too(tmp_path: Path, registry: str) -> None:
    with pytest.raises(UnknownImageError, match="non-ECR"):
        check_exists(f"{registry}train:1", image_files=tmp_path)

    write(tmp_path, '"*train:1" = "sagemaker-base-python"')

    check_exists(f"{registry}train:1", image_files=tmp_path)
    found = resolve_image(f"{registry}train:1", image_files=tmp_path)
    assert found.training_module is None


def test_an_engine_image_stands_in_by_its_name(image_files: Path) -> None:
    write(image_files, f'"{OWN}:*" = "tiny"')

    found = resolve_image(f"{OWN}:7", image_files=image_files)

    assert found.image is not None
    assert found.image.name == "tiny"


def test_a_version_stands_in_by_its_engine_image_not_by_its_repository(tmp_path: Path) -> None:
    (tmp_path / "scikit-learn-1.2-1").symlink_to(IMAGES_FOLDER / "scikit-learn-1.2-1")
    write(tmp_path, f'"{OWN}" = "scikit-learn-1.2-1"')

    found = resolve_image(f"{OWN}:7", image_files=tmp_path)

    assert found.image is not None
    assert found.image.name == "scikit-learn-1.2-1"
    write(tmp_path, f'"{OWN}" = "sagemaker-scikit-learn"')
    with pytest.raises(UnknownImageError, match=r"allowed: .*scikit-learn-1\.2-1"):
        resolve_image(f"{OWN}:7", image_files=tmp_path)


def test_the_environment_itself_serves_where_it_has_what_the_engine_image_adds(
    image_files: Path,
) -> None:
    path = image_files / "tiny" / "requirements.txt"
    path.write_text(f"#: unless = torch\n#: training-module = tiny:main\n{path.read_text()}")
    write(image_files, f'"{OWN}" = "tiny"')

    found = resolve_image(f"{OWN}:7", image_files=image_files)

    assert (found.image, found.training_module) == (None, "tiny:main")


def test_the_first_pattern_decides_and_a_digest_is_every_tag() -> None:
    own = {f"{OWN}:old": "tensorflow", f"{OWN}": "pytorch", "*": "xgboost"}

    uris = [f"{OWN}:old", f"{OWN}:new", f"{OWN}@sha256:{'0' * 64}", "other"]

    assert [stand_in(uri, own) for uri in uris] == ["tensorflow", "pytorch", "pytorch", "xgboost"]
    assert stand_in(f"{OWN}-2", {OWN: "pytorch"}) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[images]\n"a" = "cobol"', r": 'a' cannot be mapped to 'cobol'; allowed: .*pytorch"),
        ('[image]\n"a" = "pytorch"', r": unknown table 'image'; allowed: \[images\]"),
        ("[images", " is not valid TOML"),
    ],
    ids=["target", "table", "syntax"],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / OWN_IMAGES).write_text(text)

    with pytest.raises(UnknownImageError, match=f"{OWN_IMAGES}{said}"):
        check_exists(f"{OWN}:1", image_files=tmp_path)


def test_the_file_that_ships_maps_nothing() -> None:
    assert read_own_images(IMAGES_FOLDER, allowed=()) == {}
