"""Arguments of a script as they are: in order, without a name, in the script's own style."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.sagemaker_api.golden_specs import CODE, IMAGE, ROLE
from trainyard.errors import SpecError
from trainyard.sagemaker_api.source_archive import source_archive
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard.specs.training_job import TrainingJobSpec

if TYPE_CHECKING:
    from pathlib import Path

ARGUMENTS = ("config/tiny.py", "--device=cpu", "--flag", "two words")
# Prints what a script of the user's may depend on.
SCRIPT = """
import json, sys
import neighbor
print(json.dumps({"argv": sys.argv, "name": __name__, "file": __file__, "first": sys.path[0]}))
"""


def spec(**members: Any) -> TrainingJobSpec:
    base = {
        "role": ROLE,
        "output_path": "s3://bucket/output",
        "image_uri": IMAGE,
        "instance_type": "ml.m5.large",
        "entry_point": "jobs/train.py",
        "arguments": ARGUMENTS,
    }
    return TrainingJobSpec.from_mapping({**base, **members})


def rendered(**members: Any) -> dict[str, Any]:
    return render_training_job(spec(**members), name="job", region="us-east-1", code_s3_uri=CODE)


def test_the_script_gets_them_first_and_its_hyperparameters_after_them(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "train.py").write_text(SCRIPT)
    (tmp_path / "jobs" / "neighbor.py").write_text("")
    hyperparameters = rendered(hyperparameters={"epochs": 3})["HyperParameters"]
    archive = source_archive(tmp_path, entry_point="jobs/train.py", has_arguments=True)
    with tarfile.open(fileobj=io.BytesIO(archive.content)) as packed:
        packed.extractall(tmp_path / "code", filter="data")
    given = {key: json.loads(value) for key, value in hyperparameters.items()}
    own = {key: each for key, each in given.items() if not key.startswith("sagemaker_")}
    pairs = (part for key in sorted(own) for part in (f"--{key}", str(own[key])))  # as the toolkit

    done = subprocess.run(
        [sys.executable, given["sagemaker_program"], *pairs],
        cwd=tmp_path / "code",
        env={**os.environ, "SM_HPS": json.dumps(own)},
        capture_output=True,
        check=True,
        text=True,
    )

    said = json.loads(done.stdout)
    assert said["argv"] == ["jobs/train.py", *ARGUMENTS, "--epochs", "3"]
    assert said["name"] == "__main__"
    assert said["file"].endswith("jobs/train.py")
    assert said["first"].endswith("code/jobs")


def test_requirements_are_those_of_the_folder_that_is_packed() -> None:
    assert spec(requirements="gpu.txt").requirements == "gpu.txt"
    with pytest.raises(SpecError, match="requirements: need a source folder or repository"):
        spec(
            requirements="gpu.txt",
            arguments=(),
            source_dir="s3://bucket/code/sourcedir.tar.gz",
        )
    with pytest.raises(SpecError, match="requirements: need an entry_point"):
        spec(requirements="gpu.txt", arguments=(), entry_point=None)


def test_sigterm_is_forwarded_to_the_program_that_runs() -> None:
    algorithm = rendered(forward_sigterm=True)["AlgorithmSpecification"]
    assert algorithm["ContainerArguments"][0] == "trainyard_arguments.py"


def test_a_script_without_arguments_is_started_as_before(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    request = rendered(arguments=(), forward_sigterm=True)
    assert request["HyperParameters"]["sagemaker_program"] == '"jobs/train.py"'
    assert "trainyard_arguments" not in request["HyperParameters"]
    assert source_archive(tmp_path).num_files == 1


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"source_dir": "s3://bucket/code/sourcedir.tar.gz"}, "need a source folder or repository"),
        ({"entry_point": None}, "arguments: need an entry_point"),
        ({"entry_point": "train.sh"}, "need a Python script"),
        ({"arguments": ("x" * 2500,)}, "are too long as JSON"),
    ],
    ids=["archive", "no script", "shell", "too long"],
)
def test_arguments_that_cannot_reach_the_script_are_refused(
    members: dict[str, Any], told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        spec(**members)
