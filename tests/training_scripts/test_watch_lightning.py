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
import torch

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


def started(*arguments: object, script: object = LOOP) -> subprocess.Popen[str]:
    """Return a process of the training, or of another script."""
    paths = os.pathsep.join(each for each in (str(SCRIPTS), FOLDER) if each)
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", str(script), *map(str, arguments)],
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


def test_a_sigterm_in_a_validation_ends_it_with_a_checkpoint(
    container: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started(10, 0, "stopped")
    stopped = output_of(process)

    assert process.returncode == 143, stopped
    assert stopped.count("SIGTERM: the validation after step 5 is NOT MEASURED") == 1
    assert "trainyard durable step=5 " in stopped
    assert "trainyard eval " not in stopped
    assert not list((container / "checkpoints" / "best").glob("*"))
    resumed = output_of(started(10))
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "other"))
    unbroken = output_of(started(10))
    assert "trainyard start step=5 " in resumed, resumed
    assert "trainyard done step=10 " in resumed
    assert resumed.splitlines()[-1] == unbroken.splitlines()[-1]


CHOICES = """
import shutil, sys
from pathlib import Path
from trainyard_watch.lightning import newest_checkpoint
while path := newest_checkpoint(sys.argv[1]):
    print("chosen", Path(path).name)
    shutil.rmtree(path) if Path(path).is_dir() else Path(path).unlink()
"""


def test_newest_checkpoint_is_the_complete_one_of_the_highest_step(tmp_path: Path) -> None:
    """The times of the files are those of the platform's restore."""
    folder, script = tmp_path / "checkpoints", tmp_path / "choices.py"
    (folder / "sharded.ckpt").mkdir(parents=True)
    (folder / "half.ckpt").mkdir()
    for name, step in (("whole", 2), ("unfinished", 90_000)):  # DeepSpeed's folders
        states = folder / f"{name}.ckpt" / "checkpoint" / "mp_rank_00_model_states.pt"
        states.parent.mkdir(parents=True)
        torch.save({"global_step": step}, states)
    (folder / "whole.ckpt" / "latest").write_text("checkpoint")
    script.write_text(CHOICES)
    steps = {"last": 300, "epoch=9-step=70000": 70_000, "stopped": 200, "sharded": 1, "torn": 2**32}
    others = {"state_dict": {"net": torch.ones(1000)}, "hyper_parameters": {"path": tmp_path}}
    for age, (name, step) in enumerate(steps.items()):
        path = folder / f"{name}.ckpt"
        path = path / "meta.pt" if path.is_dir() else path
        torch.save({"epoch": 9, "global_step": step, **others}, path)
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
    torn = folder / "torn.ckpt"
    torn.write_bytes(torn.read_bytes()[:-100])

    output = output_of(started(folder, script=script))

    chosen = re.findall(r"^chosen (.*)\.ckpt$", output, re.MULTILINE)
    assert chosen == ["epoch=9-step=70000", "last", "stopped", "whole", "sharded"]
    assert "unfinished.ckpt is incomplete" in output
    assert "torn.ckpt is incomplete" in output
    assert "half.ckpt is incomplete" in output
