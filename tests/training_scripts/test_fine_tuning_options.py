"""Refusals of train_sft.py by its options alone: no model, no library of the image is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "training_scripts"

STAGE_3 = '{"zero_optimization": {"stage": 3}}'


def run(
    place: Path, *arguments: str, hps: dict[str, Any] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the script with arguments."""
    return subprocess.run(
        [sys.executable, SCRIPTS / "fine_tuning" / "train_sft.py", *arguments],
        env={
            **os.environ,
            "SAGEMAKER_BASE_DIR": str(place),
            "PYTHONPATH": str(SCRIPTS),
            **({} if hps is None else {"SM_HPS": json.dumps(hps)}),
        },
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
        (["--strategy=zero"], ["strategy is 'zero'; allowed: ddp, fsdp, deepspeed"]),
        (
            [
                *("--strategy=deepspeed", f"--ds_config={STAGE_3}"),
                *("--adapter=qlora", "--load_in_8bit=true"),
            ],
            [
                "ZeRO-3 cannot shard an 8-bit base model; set load_in_8bit to false, or the stage to 1"
            ],
        ),
        (
            ["--strategy=deepspeed"],
            ["strategy 'deepspeed' needs DeepSpeed, which this image lacks"],
        ),
        (
            ["--strategy=deepspeed", '--ds_config={"zero_optimization": {}, "fp16": {}}'],
            [
                "ds_config.zero_optimization.stage is 0; allowed: 1, 2, 3",
                "ds_config.fp16 is set by",
            ],
        ),
        (["--strategy=deepspeed", "--ds_config=stage=3"], ["ds_config is not a JSON object"]),
        ([f"--ds_config={STAGE_3}"], ["ds_config is set, but strategy is 'ddp'"]),
        (
            ["--strategy=fsdp", "--adapter=qlora", "--load_in_8bit=true"],
            ["cannot shard an 8-bit base model; set load_in_8bit to false, or strategy to 'ddp'"],
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


def test_the_toolkits_text_of_a_mapping_gives_way_to_sm_hps(tmp_path: Path) -> None:
    hps = {"strategy": "deepspeed", "ds_config": {"zero_optimization": {"stage": 4}}}

    assert run(tmp_path, "--strategy=deepspeed", "--ds_config", "stage=4", hps=hps).returncode == 1

    failure = (tmp_path / "output" / "failure").read_text()
    assert "ds_config.zero_optimization.stage is 4; allowed: 1, 2, 3" in failure


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "--learning_rat=1")

    assert done.returncode == 2
    assert "--learning_rat" in done.stderr


def test_a_wrong_optional_number_is_named_with_its_type(tmp_path: Path) -> None:
    done = run(tmp_path, "--learning_rate=fast")

    assert done.returncode == 2
    assert "argument --learning_rate: invalid float value: 'fast'" in done.stderr
