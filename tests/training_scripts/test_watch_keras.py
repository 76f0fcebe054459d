"""Keras' `fit` under `trainyard_watch`, on TensorFlow without torch and on torch.

The tests take Keras from the engine's image `tensorflow`, or from the interpreter that `TRAINYARD_KERAS` names.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.limits import EVENT_LIMIT_S
from tests.sagemaker_engine.images.built import need_image
from tests.training_scripts.conftest import SCRIPTS
from trainyard.rules.records import StepRecord, Validation
from trainyard.rules.training_log import TrainingLogReader

if TYPE_CHECKING:
    from collections.abc import Callable

LOOP = Path(__file__).with_name("keras_loop.py")
BATCHES = 3
"""Of an epoch of the loop."""
OF_KERAS = (
    *("keras", "h5py", "h5py.libs", "optree", "namex", "absl", "ml_dtypes", "rich"),
    *("markdown_it", "mdurl", "pygments"),
)
"""Folders of Keras and what it imports on torch."""
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # an import of torch fails
from pathlib import Path
from trainyard_watch import background_saver, environment, metrics, retention, stopping
from trainyard_watch.checkpoint_folder import CheckpointFolder
layout = retention.ManifestLayout(Path(sys.argv[1]))
folder = CheckpointFolder(layout.folder, retention.Retention(layout, keep=2))
folder.save(3, objects={}, files={"state.npz": lambda: b"arrays"}, facts={"epoch": 1})
found = folder.newest_good()
print(found.step, found.read("state.npz"))
"""


def test_checkpoints_of_files_need_no_torch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path / "checkpoints")],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        capture_output=True,
        check=False,
        text=True,
        timeout=EVENT_LIMIT_S,
    )

    assert (done.stdout.strip(), done.returncode) == ("3 b'arrays'", 0), done.stderr


@pytest.fixture(scope="module")
def python() -> Path:
    """Return an interpreter with Keras and TensorFlow."""
    if given := os.environ.get("TRAINYARD_KERAS"):
        return Path(given)
    return need_image("tensorflow") / "bin" / "python"


@pytest.fixture(params=["tensorflow", "torch"])
def start(
    request: pytest.FixtureRequest, python: Path, tmp_path: Path
) -> Callable[..., subprocess.Popen[str]]:
    """Return a function that starts the loop in a container folder; Keras on torch is this environment's torch."""
    packages, is_torch = tmp_path / "packages", request.param == "torch"
    packages.mkdir()
    for name in OF_KERAS:  # without TensorFlow, which Keras would import beside torch
        (packages / name).symlink_to(
            next(python.parents[1].glob(f"lib/python3*/site-packages/{name}"))
        )

    def started(job: str, *arguments: object) -> subprocess.Popen[str]:
        paths = [SCRIPTS, packages] if is_torch else [SCRIPTS]
        return subprocess.Popen(
            [sys.executable if is_torch else python, "-W", "ignore", LOOP, *map(str, arguments)],
            env={
                **os.environ,
                "SAGEMAKER_BASE_DIR": str(tmp_path / job),
                "KERAS_BACKEND": request.param,
                "PYTHONPATH": os.pathsep.join(map(str, paths)),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return started


def interrupted(process: subprocess.Popen[str], *, after: str, by: signal.Signals) -> str:
    """Send a signal when the process has printed a text; return what it prints until its end."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if after in line:
            process.send_signal(by)
            return seen + process.communicate(timeout=EVENT_LIMIT_S)[0]
    raise AssertionError(f"no {after!r} in:\n{seen}")


def output_of(process: subprocess.Popen[str]) -> str:
    """Return what a process printed until its end, which must be a success."""
    text = process.communicate(timeout=EVENT_LIMIT_S)[0]
    assert process.returncode == 0, text
    return text


@pytest.mark.slow
@pytest.mark.torch
def test_a_killed_fit_goes_on_to_the_same_weights_and_each_step_is_written(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    killed = start("job", 8, 0.3)
    interrupted(killed, after="trainyard durable step=6 ", by=signal.SIGKILL)

    resumed, unbroken = output_of(start("job", 8)), output_of(start("unbroken", 8))

    assert re.search(r"trainyard resume step=(6|9|12) ", resumed)
    assert "trainyard done step=24 " in resumed
    assert resumed.splitlines()[-1].startswith("weights ")
    assert resumed.splitlines()[-1] == unbroken.splitlines()[-1]
    reader = TrainingLogReader()
    records = [each for line in unbroken.splitlines() if (each := reader.read(line))]
    assert sum(isinstance(each, Validation) for each in records) == 8
    steps = [each for each in records if isinstance(each, StepRecord)]
    assert [each.step for each in steps] == list(range(1, 25))
    assert steps[0].learning_rate == pytest.approx(0.01)
    # Keras logs the mean of an epoch; a step's line has the step's own loss.
    losses = [each.loss or 0.0 for each in steps]
    means = [sum(losses[at : at + BATCHES]) / BATCHES for at in range(0, 24, BATCHES)]
    (logged,) = re.findall(r"^losses (.*)$", unbroken, re.MULTILINE)
    assert means == pytest.approx(json.loads(logged), rel=1e-4)
    assert losses[0] != pytest.approx(losses[1], rel=1e-2)


@pytest.mark.slow
@pytest.mark.torch
def test_a_sigterm_within_an_epoch_ends_fit_with_a_checkpoint_of_the_last_step(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = start("job", 100, 0.3)
    text = interrupted(process, after="trainyard step=4 ", by=signal.SIGTERM)

    assert process.returncode == 143, text
    last = re.findall(r"trainyard step=(\d+) ", text)[-1]
    assert f"trainyard durable step={last} " in text
    assert "trainyard done" not in text
    epoch = int(last) // BATCHES
    resumed = output_of(start("job", epoch + 1))
    assert f"trainyard resume step={last} " in resumed
    assert f"trainyard done step={int(last) + BATCHES} " in resumed


@pytest.mark.slow
@pytest.mark.torch
def test_a_sigterm_in_a_validation_ends_it_with_a_checkpoint(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    process = start("job", 2, 0, "stopped")
    stopped = process.communicate(timeout=EVENT_LIMIT_S)[0]

    assert process.returncode == 143, stopped
    assert "SIGTERM: the validation after step 3 is NOT MEASURED" in stopped
    assert "trainyard durable step=3 " in stopped
    assert "trainyard done" not in stopped
    last = output_of(start("job", 2, 0, "stopped"))  # exits with 0, since all steps are done
    assert "trainyard resume step=3 " in last
    assert "SIGTERM: the validation after step 6 is NOT MEASURED" in last
    assert "trainyard durable step=6 " in last
    assert "trainyard done step=6 " in last
    assert "trainyard eval " not in stopped + last


@pytest.mark.slow
@pytest.mark.torch
def test_a_checkpoint_that_the_script_has_not_loaded_or_of_another_model_is_an_error(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    output_of(start("job", 1))

    for case, message in (
        ("unread", "callback.resume(model) before model.fit()"),
        ("wider", "is a checkpoint of another model: its variable"),
    ):
        process = start("job", 2, 0, case)
        text = process.communicate(timeout=EVENT_LIMIT_S)[0]
        assert process.returncode == 1
        assert message in text
