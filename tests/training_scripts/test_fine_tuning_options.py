"""Refusals of train_sft.py by its options alone: no model, no library of the image is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "training_scripts"


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script with arguments."""
    return subprocess.run(
        [sys.executable, SCRIPTS / "fine_tuning" / "train_sft.py", *arguments],
        env={**os.environ, "SAGEMAKER_BASE_DIR": str(place), "PYTHONPATH": str(SCRIPTS)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "reasons"),
    [
        (
            ["--adapter=none", "--artifact=adapter", "--rank=0"],
            ["rank is 0; allowed: at least 1", "artifact is 'adapter', but adapter is 'none'"],
        ),
        (["--strategy=zero"], ["strategy is 'zero'; allowed: ddp, fsdp"]),
        (
            ["--strategy=fsdp", "--adapter=qlora", "--load_in_8bit=true"],
            ["cannot shard a base in 8 bits; set load_in_8bit to false, or strategy to 'ddp'"],
        ),
        (["--load_in_8bit=true"], ["load_in_8bit is set, but adapter is 'lora'"]),
        (["--adapter=qlora"], ["adapter 'qlora' needs bitsandbytes, which this image lacks"]),
    ],
    ids=lambda each: str(each)[:30],
)
def test_options_that_cannot_be_are_refused_before_anything_is_loaded(
    tmp_path: Path, arguments: list[str], reasons: list[str]
) -> None:
    assert run(tmp_path, *arguments).returncode == 1

    failure = (tmp_path / "output" / "failure").read_text()
    for reason in reasons:
        assert reason in failure


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "--learning_rat=1")

    assert done.returncode == 2
    assert "--learning_rat" in done.stderr


def test_a_wrong_optional_number_is_named_with_its_type(tmp_path: Path) -> None:
    done = run(tmp_path, "--learning_rate=fast")

    assert done.returncode == 2
    assert "argument --learning_rate: invalid float value: 'fast'" in done.stderr
