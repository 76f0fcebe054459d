"""The image has every file that its Dockerfile copies, and from these alone the DAGs and the engine run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.deployment import docker_image
from tests.deployment.native_services import Deployment
from trainyard.stack import leftovers

if TYPE_CHECKING:
    from pathlib import Path

IMPORT_EVERYTHING = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1], bundle_path=sys.argv[1], bundle_name="dags-folder")
own = ("trainyard", "sagemaker_engine", "trainyard_airflow", "airflow_local_settings")
files = [m.__file__ for n, m in sys.modules.items() if n.partition(".")[0] in own and m.__file__]
print(json.dumps({"dags": sorted(bag.dags), "errors": bag.import_errors, "files": sorted(files)}))
"""


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
    assert "images" in docker_image.copied()


def test_every_dag_is_imported_from_the_files_of_the_image_alone(tmp_path: Path) -> None:
    image = docker_image.build(tmp_path / "image")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(image / "include"),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__DAGS_FOLDER": str(image / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(image / "plugins"),
    }
    command = [sys.executable, "-W", "ignore", "-c", IMPORT_EVERYTHING, str(image / "dags")]

    done = subprocess.run(
        command, cwd=image, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["errors"] == {}
    assert "train_end_to_end" in found["dags"]
    assert [each for each in found["files"] if not each.startswith(str(image))] == []
    assert str(image / "plugins" / "airflow_local_settings.py") in found["files"]


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
