"""A file of `images/` says what an engine image is made of; what it cannot mean is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.images.image_file import (
    ImageFileError,
    read_image_file,
    read_image_files,
)

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "#: repositories = tiny\n"


def write(folder: Path, text: str, name: str = "tiny") -> Path:
    path = folder / name / "requirements.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_header_is_read(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "c++17").touch()
    path = write(
        tmp_path,
        "# What it is.\n#: repositories = tiny small\n#: training-module = tiny.training:main\n"
        "#: layer = environment\n#: unless = torch\n#: launchers = sagemaker_mpi_enabled\n"
        "#: programs = g++ cmake\n#: build-environment = CXXFLAGS='-std=c++17 -O1' CXX={folder}/c++17\n"
        "#: build = cmake==3.31.10 ninja==1.13.2\n"
        "#: source = packages\none==1.0  # why\n",
    )

    image = read_image_file(path)

    assert (image.name, image.repositories) == ("tiny", ("tiny", "small"))
    assert image.training_module == "tiny.training:main"
    assert image.is_layered
    assert image.unless == "torch"
    assert image.launchers == {"sagemaker_mpi_enabled"}
    assert image.programs == ("g++", "cmake")
    assert image.build_environment == {"CXXFLAGS": "-std=c++17 -O1", "CXX": f"{path.parent}/c++17"}
    assert list(image.build_files) == ["c++17"]
    assert image.build_requirements == ("cmake==3.31.10", "ninja==1.13.2")
    assert image.source == path.with_name("packages")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("one==1\n", "the setting 'repositories' is missing", id="no-repositories"),
        pytest.param(HEAD + "one\n", r"line 2: 'one' has no exact version", id="no-version"),
        pytest.param(HEAD + "one>=2\n", "has no exact version", id="a-range"),
        pytest.param(
            HEAD + "#: layers = environment\n",
            "unknown key; .*allowed keys: repositories",
            id="no-key",
        ),
        pytest.param(HEAD + "#: layer\n", "'#: layer' has no value", id="no-value"),
        pytest.param(
            HEAD + "#: build-environment = CXX={folder}/gone\n",
            "names '{folder}/gone'",
            id="no-file",
        ),
        pytest.param(HEAD + "#: layer = torch\n", "allowed: python", id="no-layer"),
    ],
)
def test_what_a_file_cannot_mean_is_told(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ImageFileError, match=said):
        read_image_file(write(tmp_path, text))


def test_a_file_beside_the_images_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text(HEAD)

    with pytest.raises(ImageFileError, match=r"move it to mine/requirements\.txt"):
        read_image_files(tmp_path)


def test_two_images_cannot_stand_in_for_one_repository(tmp_path: Path) -> None:
    write(tmp_path, HEAD, "one")
    write(tmp_path, HEAD, "two")

    with pytest.raises(ImageFileError, match=r"'tiny' is also in images/one/requirements\.txt"):
        read_image_files(tmp_path)


def test_two_images_may_share_a_repository_by_its_tags(tmp_path: Path) -> None:
    write(tmp_path, f"{HEAD}#: tags = 1.2-1 1.3\n", "one")
    write(tmp_path, f"{HEAD}#: tags = 1.4\n", "two")
    one, two = read_image_files(tmp_path)

    assert [one.has_tag(tag) for tag in ("1.2-1", "1.2-1-cpu", "1.3", "1.2-10", "1.4", None)] == [
        *(True, True, True, False, False, False)
    ]
    assert two.has_tag("1.4-2")
    write(tmp_path, f"{HEAD}#: tags = 1.3\n", "three")
    with pytest.raises(ImageFileError, match=r"own `#: tags = \.\.\.`"):
        read_image_files(tmp_path)


def test_a_build_is_another_one_when_its_pins_or_what_lies_below_it_change(tmp_path: Path) -> None:
    image = read_image_file(write(tmp_path, HEAD + "one==1\n"))
    newer = read_image_file(write(tmp_path, HEAD + "one==2\n"))
    explained = read_image_file(write(tmp_path, HEAD + "# Why.\none==1  # because\n"))
    layered = read_image_file(write(tmp_path, HEAD + "#: layer = environment\none==1\n"))

    assert image.key(python="3.11", environment="") == explained.key(python="3.11", environment="")
    assert image.key(python="3.11", environment="a") == image.key(python="3.11", environment="b")
    assert image.key(python="3.11", environment="a") != image.key(python="3.12", environment="a")
    assert image.key(python="3.11", environment="a") != newer.key(python="3.11", environment="a")
    assert layered.key(python="3.11", environment="a") != layered.key(
        python="3.11", environment="b"
    )


def test_a_build_is_another_one_when_what_builds_it_changes(
    tmp_path: Path,
) -> None:
    compiler = tmp_path / "tiny" / "c++"
    compiler.parent.mkdir()
    compiler.write_text("one")
    written = HEAD + "#: build = cmake==1\n#: build-environment = CXX={folder}/c++\none==1\n"
    path = write(tmp_path, written)

    def key() -> str:
        return read_image_file(path).key(python="3.11", environment="")

    first = key()
    assert key() == first
    compiler.write_text("two")
    second = key()
    path.write_text(written.replace("cmake==1", "cmake==2"))

    assert len({first, second, key()}) == 3


def test_the_project_s_own_files_can_be_read() -> None:
    by_name = {image.name: image for image in read_image_files()}

    assert "tensorflow-training" in by_name["tensorflow"].repositories
    assert "sagemaker-xgboost" in by_name["xgboost"].repositories
    assert by_name["huggingface"].is_layered
    assert all(image.source is None or image.source.is_dir() for image in by_name.values())
