"""The images have every file that their Dockerfiles copy, and these suffice to build the wheel and run the engine."""

from __future__ import annotations

import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.deployment import docker_image
from tests.deployment.installing import build_wheel
from tests.deployment.native_services import Deployment
from trainyard.stack import leftovers

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("README.md", True),
        ("include/trainyard/units.py", False),
        ("include/trainyard/__pycache__/units.pyc", True),
        ("docs/deep/page.md", True),
        ("docs/deep/kept.md", False),
        ("a.tmp", True),
    ],
)
def test_the_last_pattern_that_matches_decides(path: str, ignored: bool) -> None:
    by = ["*", "!include", "**/__pycache__", "!docs/**/kept.md", "?.tmp"]
    assert docker_image.is_ignored(path, by=by) is ignored


@pytest.mark.parametrize(
    "source", [*docker_image.copied(), *docker_image.copied(docker_image.ENGINE)]
)
def test_the_build_context_has_every_source_that_the_dockerfile_copies(source: str) -> None:
    assert docker_image.context_files(source) != []


def test_the_build_context_has_the_pins_of_the_engine_images() -> None:
    pins = {
        path.parent.name for path in (docker_image.REPOSITORY / "images").glob("*/requirements.txt")
    }
    assert pins
    assert pins <= {path.parent.name for path in docker_image.context_files("images")}
    assert "images" in docker_image.copied(docker_image.ENGINE)


def test_the_wheel_of_the_image_is_the_repositorys(tmp_path: Path) -> None:
    source = docker_image.copy_source(tmp_path / "source")

    of_image = build_wheel(tmp_path / "image", source)
    of_repository = build_wheel(tmp_path / "repository", docker_image.REPOSITORY)

    names = zipfile.ZipFile(of_image).namelist()
    assert sorted(names) == sorted(zipfile.ZipFile(of_repository).namelist())
    assert "trainyard/shipped/dags/train_end_to_end.py" in names
    assert "trainyard_airflow/cluster_policy.py" in names


@pytest.mark.skipif(sys.platform != "linux", reason="processes by mark: Linux only")
def test_the_engines_service_starts_from_the_files_of_the_image_alone(tmp_path: Path) -> None:
    deployment = Deployment(folder=tmp_path)
    try:
        deployment.start_service("engine")
        deployment.wait(lambda: deployment.listens("engine"), "the engine's port")
        assert deployment.is_healthy("engine"), deployment.log("")
    finally:
        deployment.stop()
    assert leftovers.marked(deployment.home) == []
