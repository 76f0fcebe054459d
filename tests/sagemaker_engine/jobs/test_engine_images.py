"""A job whose image is an engine image finds it, gets it built, or fails with the command that builds it."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.jobs.container import STUBS_INSIDE
from sagemaker_engine.jobs.launchers import TORCHRUN
from tests.sagemaker_engine.images.built import need_image
from tests.sagemaker_engine.images.conftest import image_files, make_wheel
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


@pytest.mark.slow
def test_a_torchrun_job_builds_its_image_before_it_looks_for_torchrun(
    image_bench: JobBench, image_files: Path
) -> None:
    path = image_files / "tiny" / "requirements.txt"
    path.write_text(f"#: layer = environment\n{path.read_text()}")

    row = image_bench.run("first", COMMAND, algorithm=TINY, HyperParameters={TORCHRUN: "true"})

    assert row.status == "Completed", row.state["FailureReason"]
    assert "42" in image_bench.log("first")


@pytest.mark.slow
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
        "ClientError: engine image 'tiny' cannot be built here: a command of the build failed with "
        "`ERROR: No matching distribution "
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


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="this environment has torchvision")
def test_a_job_without_torchvision_is_told_the_image_that_has_it(bench: JobBench) -> None:
    row = bench.run("vision", 'python -c "import torchvision"')

    assert row.status == "Failed"
    assert "No module named 'torchvision'" in row.state["FailureReason"]
    (advice,) = [line for line in bench.log("vision") if "AWS's PyTorch images have" in line]
    assert "sagemaker_engine.images torchvision" in advice
    assert '"*/pytorch-training:*" = "torchvision"' in advice


def test_a_job_that_fails_otherwise_gets_no_advice(bench: JobBench) -> None:
    bench.run("other", 'python -c "import torchvisions"')

    assert "torchvision" not in " ".join(bench.log("other")).replace("torchvisions", "")


@pytest.mark.slow
def test_a_script_is_found_the_version_of_its_images_tag(
    image_bench: JobBench, image_files: Path
) -> None:
    for version, answer in (("1.2-1", 1), ("1.4-2", 2)):
        folder = image_files / f"tiny-{version}"
        folder.mkdir()
        make_wheel(folder, "versioned", f"ANSWER = {answer}\n")
        (folder / "requirements.txt").write_text(
            f"#: repositories = sagemaker-scikit-learn\n#: tags = {version}\n--no-index\n"
            f"--find-links {folder}\nversioned==1.0\n"
        )
    command = 'python -c "import versioned; print(versioned.ANSWER)"'
    registry = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn"

    for tag in ("1.2-1-cpu-py3", "1.4-2-cpu-py3"):
        image_bench.run(tag, command, algorithm={"TrainingImage": f"{registry}:{tag}"})
    refused = image_bench.run("old", command, algorithm={"TrainingImage": f"{registry}:1.0-1"})

    assert image_bench.log("1.2-1-cpu-py3")[-1] == "1"
    assert image_bench.log("1.4-2-cpu-py3")[-1] == "2"
    assert "Tags with an engine image: 1.2-1, 1.4-2" in refused.state["FailureReason"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tag", "version"), [("1.2-1", "1.2.1"), ("1.4-2", "1.4.2"), ("1.9-0", "1.9.0")]
)
def test_scikit_learn_trains_in_the_version_of_the_tag(
    bench: JobBench, tag: str, version: str
) -> None:
    need_image(f"scikit-learn-{tag}")
    image = f"683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:{tag}-cpu-py3"

    row = bench.run(
        "fit",
        algorithm={"TrainingImage": image},
        HyperParameters=bench.put_source({"train.py": SCIKIT_LEARN}),
    )

    assert row.status == "Completed", row.state["FailureReason"]
    assert f"scikit-learn {version} accuracy" in " ".join(bench.log("fit"))


SCIKIT_LEARN = """
import pandas, sklearn
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
x, y = load_iris(return_X_y=True)
score = LogisticRegression(max_iter=500).fit(x, y).score(x, y)
assert score > 0.9
print(f"scikit-learn {sklearn.__version__} accuracy {score}")
"""
