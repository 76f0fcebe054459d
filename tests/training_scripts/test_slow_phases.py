"""The scripts of Hugging Face and TensorFlow print heartbeats in each phase that may outlast the limit on silence.

The frameworks are those of the engine's images.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.limits import EVENT_LIMIT_S
from tests.sagemaker_engine.images.built import need_image
from tests.training_scripts.conftest import SCRIPTS, TINY
from tests.training_scripts.shard_writer import write_token_dataset

SLOW_PHASES = Path(__file__).with_name("slow_phases.py")
PHASES = {
    "huggingface": {"first step", "save", "model", "load"},
    "tensorflow": {"first step", "save", "load"},
}
SETTINGS = TINY | {"eval_interval": 2, "checkpoint_interval": 1, "warmup_steps": 0}


def train(framework: str, folder: Path) -> str:
    """Return the output of a training whose slow phases wait for heartbeats; it must succeed."""
    python = need_image(framework) / "bin" / "python"
    documents = [bytes(range(at, at + 50)) for at in range(24)]
    data = write_token_dataset(
        folder / "data", {"train": documents[:16], "validation": documents[16:]}
    )
    channels = {f"SM_CHANNEL_{each.upper()}": str(data / each) for each in ("train", "validation")}
    settings = {name: value for name, value in SETTINGS.items() if name != "max_steps"}
    done = subprocess.run(
        [
            *(str(python), "-W", "ignore", str(SLOW_PHASES), framework),
            *(text for name, value in settings.items() for text in (f"--{name}", str(value))),
        ],
        env={
            **os.environ,
            **channels,
            "SM_CHANNEL_INDEX": str(data / "index"),
            "SM_CHANNELS": '["train", "validation", "index"]',
            "SAGEMAKER_BASE_DIR": str(folder / "ml"),
            "PYTHONPATH": str(SCRIPTS),
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=2 * EVENT_LIMIT_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["huggingface", "tensorflow"])
def test_each_slow_phase_prints_heartbeats(framework: str, tmp_path: Path) -> None:
    output = train(framework, tmp_path)

    assert set(re.findall(r"^(.+) ends$", output, re.MULTILINE)) == PHASES[framework]
    lines = [line for line in output.splitlines() if line.startswith("trainyard ")]
    evaluations = [at for at, line in enumerate(lines) if line.startswith("trainyard eval ")]
    assert len(evaluations) == 2, output
    assert all(lines[at - 1].startswith("trainyard alive step=") for at in evaluations), output
