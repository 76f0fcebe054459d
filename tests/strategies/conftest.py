"""Fixtures of the proofs: one bench with a warm parent for all, the data, and what one process makes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.warm.handle import WarmParent
from tests.sagemaker_engine.jobs.conftest import open_bench
from tests.strategies.proof import HYPERPARAMETERS, SCRIPTS, Proving, losses_of
from tests.training_scripts.conftest import shards, token_data

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["shards", "token_data"]


@pytest.fixture(scope="session")
def proving(tmp_path_factory: pytest.TempPathFactory, token_data: Path) -> Iterator[Proving]:
    """A bench whose jobs train on the token data."""
    root = tmp_path_factory.mktemp("strategies")
    with open_bench(root) as bench:
        parent = WarmParent(root)
        parent.start()
        assert parent.wait_ready(300.0)
        yield Proving(bench=bench, data=token_data)
        parent.stop()


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory, token_data: Path) -> dict[int, float]:
    """Return the loss of each step of train_ddp.py in one process, never interrupted."""
    base = tmp_path_factory.mktemp("alone")
    (base / "input").mkdir()
    (base / "input" / "data").symlink_to(token_data)
    done = subprocess.run(
        [sys.executable, "train_ddp.py"],
        cwd=SCRIPTS,
        env={
            **os.environ,
            "SAGEMAKER_BASE_DIR": str(base),
            "SM_HPS": json.dumps(HYPERPARAMETERS),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return losses_of(done.stdout.splitlines())
