"""An engine image is built once, whoever asks; what is half built is never used."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.images.environment import BuildError, BuildStoppedError
from sagemaker_engine.images.image_file import ImageFile, read_image_file
from sagemaker_engine.images.image_store import (
    MARKER,
    ImageStore,
    default_folder,
    environment_prefix,
)
from tests.sagemaker_engine.images.conftest import make_wheel

if TYPE_CHECKING:
    from pathlib import Path

BUILDING = "building engine image"


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(folder=tmp_path / "images")


@pytest.fixture
def tiny(image_files: Path) -> ImageFile:
    return read_image_file(image_files / "tiny" / "requirements.txt")


def said_by(place: Path, code: str) -> str:
    done = subprocess.run(
        [place / "bin" / "python", "-c", code], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_two_that_ask_at_once_get_one_build(store: ImageStore, tiny: ImageFile) -> None:
    lines: list[str] = []
    places: list[Path] = []
    threads = [
        threading.Thread(target=lambda: places.append(store.build(tiny, on_progress=lines.append)))
        for _ in range(2)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert places == [store.place(tiny)] * 2
    assert sum(BUILDING in line for line in lines) == 1
    assert any(line.startswith("Installing collected packages: tiny") for line in lines)
    assert said_by(places[0], "import tiny; print(tiny.ANSWER)") == "42"


def test_an_image_whose_module_cannot_be_imported_is_not_built(
    store: ImageStore, image_files: Path
) -> None:
    path = image_files / "tiny" / "requirements.txt"
    make_wheel(image_files, "tiny", "raise RuntimeError('operator tiny::nms does not exist')\n")
    path.write_text(f"#: imports = tiny\n{path.read_text()}")
    image = read_image_file(path)

    with pytest.raises(BuildError, match="operator tiny::nms does not exist"):
        store.build(image, on_progress=lambda _: None)

    assert not store.is_built(image)


def test_what_was_left_half_built_is_built_anew(store: ImageStore, tiny: ImageFile) -> None:
    half = store.place(tiny)
    (half / "bin").mkdir(parents=True)
    (half / "bin" / "python").write_text("not one")
    assert not store.is_built(tiny)

    store.build(tiny, on_progress=lambda _: None)

    assert store.is_built(tiny)
    assert said_by(half, "import tiny; print(tiny.ANSWER)") == "42"


def test_a_build_whose_interpreter_is_gone_is_none(store: ImageStore, tiny: ImageFile) -> None:
    place = store.build(tiny, on_progress=lambda _: None)
    (place / "bin" / "python").unlink()
    (place / "bin" / "python").symlink_to(place / "no-such-python")
    assert not store.is_built(tiny)

    store.build(tiny, on_progress=lambda _: None)

    assert said_by(place, "import tiny; print(tiny.ANSWER)") == "42"


def test_another_interpreter_below_makes_another_build(
    store: ImageStore, tiny: ImageFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").touch()
    python = environment / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    places = set()
    for base in ("one", "another"):
        python.unlink(missing_ok=True)
        python.symlink_to(tmp_path / base)
        places.add(store.place(tiny))

    assert len(places) == 2


def test_a_layered_image_sees_the_packages_and_programs_below_it(
    store: ImageStore, image_files: Path
) -> None:
    path = image_files / "tiny" / "requirements.txt"
    path.write_text(f"#: layer = environment\n{path.read_text()}")
    image = read_image_file(path)

    place = store.build(image, on_progress=lambda _: None)

    below = said_by(place, "import tiny, sagemaker_training as t; print(t.__file__)")
    assert not below.startswith(str(place))
    assert (place / "bin" / "torchrun").read_text().startswith(f"#!{place}/bin/python")
    mpirun = [place / "bin" / "mpirun", "--version"]
    said = subprocess.run(mpirun, check=True, capture_output=True, text=True).stdout
    assert said.startswith("mpirun (Open MPI)")


def test_what_a_build_takes_is_there_before_the_pins(
    store: ImageStore, image_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(image_files, "tool", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(image_files))
    path = image_files / "tiny" / "requirements.txt"
    path.write_text(f"#: build = tool==1.0\n{path.read_text()}")
    lines: list[str] = []

    place = store.build(read_image_file(path), on_progress=lines.append)

    assert said_by(place, "import tool, tiny; print(tiny.ANSWER)") == "42"
    installed = [each for each in lines if each.startswith("Installing")]
    assert installed == [
        "Installing collected packages: tool",
        "Installing collected packages: tiny",
    ]


def test_a_build_that_fails_says_why_and_leaves_nothing(
    store: ImageStore, image_files: Path
) -> None:
    path = image_files / "tiny" / "requirements.txt"
    path.write_text(path.read_text().replace("tiny==1.0", "tiny==2.0"))
    image = read_image_file(path)

    with pytest.raises(BuildError, match=r"ERROR: No matching distribution found for tiny==2\.0"):
        store.build(image, on_progress=lambda _: None)

    assert not store.place(image).exists()


def test_a_program_that_a_build_takes_is_asked_for_first(
    store: ImageStore, image_files: Path
) -> None:
    path = image_files / "tiny" / "requirements.txt"
    path.write_text(f"#: programs = no-such-compiler\n{path.read_text()}")

    with pytest.raises(
        BuildError, match="requires programs that this machine does not have: no-such-compiler"
    ):
        store.build(read_image_file(path), on_progress=lambda _: None)


def test_a_build_that_nobody_wants_ends(store: ImageStore, tiny: ImageFile) -> None:
    with pytest.raises(BuildStoppedError):
        store.build(tiny, on_progress=lambda _: None, is_unwanted=lambda: True)

    assert not store.place(tiny).exists()


def test_builds_that_no_file_describes_any_more_can_be_removed(
    store: ImageStore, tiny: ImageFile
) -> None:
    (store.folder / "tiny-000000000000").mkdir(parents=True)
    (store.folder / "of-somebody-else").mkdir()
    place = store.place(tiny)
    place.mkdir()
    (place / MARKER).touch()

    assert store.remove_old([tiny]) == ["tiny-000000000000"]
    left = sorted(each.name for each in store.folder.iterdir() if each.is_dir())
    assert left == ["of-somebody-else", place.name]


def test_an_old_build_that_goes_on_is_not_removed(store: ImageStore, tiny: ImageFile) -> None:
    (store.folder / "tiny-000000000000").mkdir(parents=True)
    with (store.folder / "tiny-000000000000.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert store.remove_old([tiny]) == []

    assert store.remove_old([tiny]) == ["tiny-000000000000"]


@pytest.mark.parametrize(("whose", "is_kept"), [("another", True), ("gone", False), ("own", False)])
def test_a_layered_build_is_kept_while_another_environment_below_it_is_there(
    store: ImageStore, tiny: ImageFile, tmp_path: Path, whose: str, is_kept: bool
) -> None:
    base = environment_prefix() if whose == "own" else tmp_path / whose
    packages = base / "lib" / "python3.11" / "site-packages"
    if whose == "another":
        packages.mkdir(parents=True)
    if whose == "own":
        packages = next(base.glob("lib/python3*/site-packages"))
    old = store.folder / "tiny-000000000000"
    (old / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    record = old / "lib" / "python3.11" / "site-packages" / "trainyard-environment.pth"
    record.write_text(f"{packages}\n")

    removed = store.remove_old([tiny])

    assert removed == ([] if is_kept else [old.name])
    assert old.exists() is is_kept


def test_the_folder_is_the_user_s_cache_unless_told(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRAINYARD_IMAGES", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "trainyard" / "images"

    monkeypatch.setenv("TRAINYARD_IMAGES", str(tmp_path / "elsewhere"))
    assert default_folder() == tmp_path / "elsewhere"


def test_a_link_to_the_environment_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "bin").mkdir(parents=True)
    (tmp_path / "real" / "pyvenv.cfg").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "link" / "bin" / "python"))

    assert environment_prefix() == tmp_path / "real"
