"""`engine` prints two lines; with them in its environment any SageMaker client talks to the engine."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import boto3
import pytest

from tests.conftest import REPOSITORY
from tests.limits import EVENT_LIMIT_S
from trainyard.stack import leftovers
from trainyard.stack.home import Home

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stack's supervision needs Linux"
)


def exported(line: str) -> dict[str, str]:
    """Return what a shell would export for a line `export A=1 B=2`."""
    word, *pairs = shlex.split(line)
    assert word == "export"
    return dict(pair.split("=", 1) for pair in pairs)


def test_a_client_with_the_two_exported_lines_reaches_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home.of(tmp_path / "home")
    command = [sys.executable, "-m", "trainyard.stack", "--home", str(home.path), "engine"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                monkeypatch.delenv(name)
            for name, value in {**exported(lines[0]), **exported(lines[1])}.items():
                monkeypatch.setenv(name, value)

            answer = boto3.client("sagemaker").list_training_jobs()

            assert answer["TrainingJobSummaries"] == []
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=EVENT_LIMIT_S)
    assert leftovers.marked(home) == []
