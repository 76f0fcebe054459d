"""A job whose image is an engine image finds it, gets it built, or fails with the command that builds it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.jobs.container import STUBS_INSIDE
from sagemaker_engine.jobs.launchers import TORCHRUN
from tests.sagemaker_engine.images.conftest import image_files
from tests.sagemaker_engine.jobs.conftest import JobBench, statuses

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["image_files"]

pytestmark = pytest.mark.engine
TINY = {"TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/tiny:1.0"}
COMMAND = 'python -c "import tiny; print(tiny.ANSWER)" && echo "$PATH"'


@pytest.fixture
def image_bench(bench: JobBench, image_files: Path, tmp_path: Path) -> JobBench:
    """A bench whose engine knows one image, `tiny`, that nobody has built."""
    bench.settings = replace(
        bench.settings, image_files=image_files, images_folder=tmp_path / "images"
    )
    return bench


def test_an_image_is_built_by_the_first_job_that_needs_it(image_bench: JobBench) -> None:
    first = image_bench.run("first", COMMAND, algorithm=TINY)
    second = image_bench.run("second", COMMAND, algorithm=TINY)

    assert (first.status, second.status) == ("Completed", "Completed")
    starting = first.state["SecondaryStatusTransitions"][0]
    assert (starting["Status"], starting["StatusMessage"]) == (
        "Starting",
        "Downloading the training image",
    )
    assert "building engine image tiny" in image_bench.log("first")[0]
    assert "42" in image_bench.log("first")
    assert image_bench.log("second")[0] == "42"
    assert STUBS_INSIDE not in image_bench.log("second")[1]


def test_a_torchrun_job_builds_its_image_before_it_looks_for_torchrun(
    image_bench: JobBench, image_files: Path
) -> None:
    path = image_files / "tiny" / "requirements.txt"
    path.write_text(f"#: layer = environment\n{path.read_text()}")

    row = image_bench.run("first", COMMAND, algorithm=TINY, HyperParameters={TORCHRUN: "true"})

    assert row.status == "Completed", row.state["FailureReason"]
    assert "42" in image_bench.log("first")


def test_what_a_job_installs_stays_in_the_job(image_bench: JobBench) -> None:
    spoil = "python -c \"import tiny; open(tiny.__file__, 'w').write('ANSWER = 0')\""

    image_bench.run("spoils", spoil, algorithm=TINY)
    image_bench.run("after", COMMAND, algorithm=TINY)

    assert image_bench.log("after")[0] == "42"


def test_an_image_that_cannot_be_built_fails_the_job_before_it_costs(
    image_bench: JobBench, image_files: Path
) -> None:
    path = image_files / "tiny" / "requirements.txt"
    path.write_text(path.read_text().replace("tiny==1.0", "tiny==2.0"))

    row = image_bench.run("first", COMMAND, algorithm=TINY)

    assert statuses(row) == ["Starting", "Failed"]
    assert row.state["FailureReason"].startswith(
        "ClientError: engine image 'tiny' cannot be built here: ERROR: No matching distribution "
        "found for tiny==2.0"
    )
    assert row.state["FailureReason"].endswith(
        "Build it by hand: python -m sagemaker_engine.images tiny"
    )
    assert "BillableTimeInSeconds" not in row.state


def test_an_engine_that_does_not_build_names_the_command(image_bench: JobBench) -> None:
    image_bench.settings = replace(image_bench.settings, builds_images=False)

    row = image_bench.run("first", COMMAND, algorithm=TINY)

    assert row.status == "Failed"
    assert row.state["FailureReason"] == (
        "ClientError: engine image 'tiny' is not built, and this engine does not build images "
        "(--build-images never). Build it by hand: python -m sagemaker_engine.images tiny"
    )
