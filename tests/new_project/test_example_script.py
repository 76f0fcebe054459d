"""The training script that `trainyard init` writes: the training tab reads its curve, progress and checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPOSITORY
from tests.limits import EVENT_LIMIT_S
from trainyard.installation import TRAINING_SCRIPTS
from trainyard.new_project.__main__ import EXAMPLE, Platform, files_of
from trainyard.runs.continuity.log_lines import LogLine
from trainyard.runs.live.training_events import TrainingEvents

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torch
MAX_STEPS = 20


@pytest.mark.slow
def test_the_training_tab_reads_the_examples_log(tmp_path: Path) -> None:
    platform = Platform.PLAIN
    script = tmp_path / "train.py"
    script.write_text(files_of(platform)[platform.scripts / "train.py"])
    (tmp_path / "model").mkdir()
    only_rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}

    done = subprocess.run(
        [sys.executable, str(script), "--max_steps", str(MAX_STEPS)],
        env={
            **os.environ,
            **only_rank,
            "PYTHONPATH": str(TRAINING_SCRIPTS),
            "OMP_NUM_THREADS": "1",
            "SAGEMAKER_BASE_DIR": str(tmp_path),
            "SM_MODEL_DIR": str(tmp_path / "model"),
        },
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=EVENT_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    events = TrainingEvents()
    for line in done.stdout.splitlines():
        events.read(LogLine(job=EXAMPLE, stream=EXAMPLE, time_ms=0, text=line))

    _, points = events.rows()
    assert [point[1] for point in points if "validation_loss" in point[4]] == [10, 20]
    assert {1, MAX_STEPS} <= {point[1] for point in points if "loss" in point[4]}
    assert (events.last_step, events.max_steps, events.is_done) == (MAX_STEPS, MAX_STEPS, True)
    assert sorted(events.checkpoints) == [10, 20]
    assert (tmp_path / "model" / "model.pt").stat().st_size > 0
