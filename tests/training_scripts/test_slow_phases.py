"""Trainings by Hugging Face and TensorFlow print heartbeats in long phases, and a stop ends an evaluation.

The frameworks are those of the engine's images.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.limits import EVENT_LIMIT_S
from tests.sagemaker_engine.images.built import need_image
from tests.training_scripts.conftest import SCRIPTS, TINY
from tests.training_scripts.shard_writer import write_token_dataset

PHASES = {
    "huggingface": {"first step", "save", "model", "load"},
    "tensorflow": {"first step", "save", "load"},
}
SETTINGS = {name: value for name, value in TINY.items() if name != "max_steps"} | {
    "eval_interval": 2,
    "checkpoint_interval": 1,
    "warmup_steps": 0,
}


def train(program: str, framework: str, folder: Path, **others: int) -> tuple[int, str]:
    """Return the exit code and the output of a training by a program of this folder."""
    python = need_image(framework) / "bin" / "python"
    documents = [bytes(range(at, at + 50)) for at in range(24)]
    data = write_token_dataset(
        folder / "data", {"train": documents[:16], "validation": documents[16:]}
    )
    channels = {f"SM_CHANNEL_{each.upper()}": str(data / each) for each in ("train", "validation")}
    done = subprocess.run(
        [
            *(str(python), "-W", "ignore", str(Path(__file__).with_name(program)), framework),
            *(
                text
                for name, value in (SETTINGS | others).items()
                for text in (f"--{name}", str(value))
            ),
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
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["huggingface", "tensorflow"])
def test_each_slow_phase_prints_heartbeats(framework: str, tmp_path: Path) -> None:
    code, output = train("slow_phases.py", framework, tmp_path)

    assert code == 0, output
    assert set(re.findall(r"^(.+) ends$", output, re.MULTILINE)) == PHASES[framework]
    lines = [line for line in output.splitlines() if line.startswith("trainyard ")]
    evaluations = [at for at, line in enumerate(lines) if line.startswith("trainyard eval ")]
    assert len(evaluations) == 2, output
    assert all(lines[at - 1].startswith("trainyard alive step=") for at in evaluations), output


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["huggingface", "tensorflow"])
@pytest.mark.parametrize("max_steps", [2, 6])
def test_a_stop_ends_an_evaluation_and_a_checkpoint_follows(
    framework: str, max_steps: int, tmp_path: Path
) -> None:
    """The first evaluation is after step 2."""
    rare = {"checkpoint_interval": 100, "max_steps": max_steps}

    code, output = train("stopped_evaluation.py", framework, tmp_path, **rare)

    assert code == 128 + signal.SIGTERM, output
    assert "SIGTERM: the validation after step 2 is NOT MEASURED" in output
    assert "trainyard eval " not in output
    assert "trainyard durable step=" in output


@pytest.mark.slow
def test_a_stop_ends_an_evaluation_of_a_watched_trainer(tmp_path: Path) -> None:
    """It saves only the best checkpoints, by the result of the evaluation, which a stop leaves out."""
    (code, stopped), (last_code, last) = (
        train("huggingface_loop.py", "huggingface", tmp_path, max_steps=4, is_stoppable=1)
        for _ in range(2)
    )

    assert code == 128 + signal.SIGTERM, stopped
    assert "SIGTERM: the validation after step 2 is NOT MEASURED" in stopped
    assert "trainyard eval " not in stopped
    assert "trainyard durable step=2 " in stopped
    assert last_code == 0, last
    assert "trainyard start step=2 " in last
    assert "SIGTERM: the validation after step 4 is NOT MEASURED" in last
    assert "trainyard durable step=4 " in last
    assert "trainyard done step=4 " in last


@pytest.mark.slow
def test_a_watched_trainer_of_another_class_stops_after_its_evaluation(tmp_path: Path) -> None:
    code, output = train(
        "huggingface_loop.py", "huggingface", tmp_path, max_steps=6, is_stoppable=0
    )

    assert code == 128 + signal.SIGTERM, output
    assert "trainyard eval step=2 " in output
    assert "trainyard durable step=3 " in output
