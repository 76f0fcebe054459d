"""Lightning's Trainer under `trainyard_watch`: every step is written, and a SIGTERM ends it with a checkpoint.

`TRAINYARD_LIGHTNING` names a folder with the package: `pip install --target FOLDER --no-deps lightning torchmetrics
lightning-utilities`. Without it, the tests need Lightning in the environment.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.limits import EVENT_LIMIT_S
from tests.training_scripts.conftest import SCRIPTS
from tests.training_scripts.test_watch import statistics_of
from trainyard.rules.records import StepRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = os.environ.get("TRAINYARD_LIGHTNING", "")
LOOP = Path(__file__).with_name("lightning_loop.py")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(
        not FOLDER and importlib.util.find_spec("lightning") is None,
        reason="Lightning is not installed, and TRAINYARD_LIGHTNING names no folder with it",
    ),
]


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a container in the place of /opt/ml."""
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "ml"))
    return tmp_path / "ml"


def started(*arguments: object) -> subprocess.Popen[str]:
    """Return a process of the training."""
    paths = os.pathsep.join(each for each in (str(SCRIPTS), FOLDER) if each)
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", str(LOOP), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    """Return what a process printed until its end."""
    return process.communicate(timeout=EVENT_LIMIT_S)[0]


def test_each_step_is_written_and_a_stopped_training_goes_on_to_the_same_weights(
    container: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started(20, 0.5)
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(r"trainyard step=([2-9]|1\d) ", line):  # a line a second at most
            process.send_signal(signal.SIGTERM)
            break
    stopped = output_of(process)
    assert process.returncode == 143, stopped
    assert (container / "checkpoints" / "stopped.ckpt").is_file()

    resumed = output_of(started(20))
    steps = [each for each in statistics_of(container) if isinstance(each, StepRecord)]
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "other"))
    unbroken = output_of(started(20))

    assert "trainyard done step=20 " in resumed, resumed
    assert "validation_loss=" in resumed
    assert [each.step for each in steps] == list(range(1, 21))
    assert all(each.gradient_norm > 0 for each in steps)
    weights = [text.splitlines()[-1] for text in (resumed, unbroken)]
    assert weights[0].startswith("weights ")
    assert weights[0] == weights[1]
