"""The engine is killed at random moments while jobs are created and run."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.contract.waiting import wait_until
from tests.sagemaker_engine.test_restart import CLOCK, TERMINAL, describe, start_job

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine

NUM_JOBS = 3
LONGEST_S = 1.0


def processes_of(root: Path) -> list[str]:
    """Return the command lines of the processes that belong to jobs below `root`."""
    mark = f"TRAINYARD_JOB_FOLDER={root}/".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def create_jobs(engine: RunningEngine, accepted: list[str]) -> None:
    """Create jobs until the engine is gone; note the names of those it accepted."""
    for number in range(NUM_JOBS):
        try:
            start_job(engine, f"job-{number}", "echo w > /opt/ml/model/weights; sleep 0.3")
        except (BotoCoreError, ClientError):
            return
        accepted.append(f"job-{number}")


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))]
)
def test_accepted_jobs_end_and_nothing_is_left_running(
    own_engine: RunningEngine, seed: int
) -> None:
    moment = random.Random(seed).uniform(0.0, LONGEST_S)  # noqa: S311
    accepted: list[str] = []
    creator = threading.Thread(target=create_jobs, args=(own_engine, accepted))
    creator.start()
    creator.join(moment)
    own_engine.kill()
    creator.join()

    own_engine.start()

    listed = own_engine.client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
    names = {each["TrainingJobName"] for each in listed}
    assert set(accepted) <= names
    for name in names:
        described = wait_until(
            lambda name=name: describe(own_engine, name),
            lambda described: described["TrainingJobStatus"] in TERMINAL,
            clock=CLOCK,
            what=f"the end of {name}",
        )
        assert described["TrainingJobStatus"] == "Completed", described
        key = described["ModelArtifacts"]["S3ModelArtifacts"].split("/", 3)[3]
        own_engine.client("s3").head_object(Bucket=own_engine.bucket, Key=key)
    wait_until(
        lambda: processes_of(own_engine.root),
        lambda left: not left,
        clock=CLOCK,
        what="end of all processes",
    )
