"""`engine` prints two lines; with them in its environment any SageMaker client talks to the engine."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import boto3
import pytest
from rich.console import Console

from tests.conftest import REPOSITORY
from tests.limits import EVENT_LIMIT_S
from trainyard.errors import TrainingRunError
from trainyard.stack import leftovers
from trainyard.stack.addresses import USUAL_ENGINE_PORT, choose
from trainyard.stack.engine_alone import engine_alone, last_port
from trainyard.stack.home import Home

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_ENGINE = """
import importlib.util, runpy
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "sagemaker_engine" else find(name)
runpy.run_module("trainyard.stack", run_name="__main__", alter_sys=True)
"""

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
    port = choose(usual=False).engine_port
    home.prepare()
    home.engine_port.write_text(str(port))
    command = [sys.executable, "-m", "trainyard.stack", "--home", str(home.path), "engine"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                monkeypatch.delenv(name)
            for name, value in {**exported(lines[0]), **exported(lines[1])}.items():
                monkeypatch.setenv(name, value)

            assert lines[0] == f"export AWS_ENDPOINT_URL=http://127.0.0.1:{port}\n"
            answer = boto3.client("sagemaker").list_training_jobs()

            assert answer["TrainingJobSummaries"] == []
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=EVENT_LIMIT_S)
    assert leftovers.marked(home) == []


def test_a_given_port_that_is_taken_is_an_error_and_leaves_no_folder(tmp_path: Path) -> None:
    home = Home.of(tmp_path / "home")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(TrainingRunError, match=rf"(?s)port is taken.*{port}"):
            engine_alone(home, console=Console(), port=port)

    assert not home.path.exists()


def test_an_engine_that_is_not_installed_leaves_no_folder(tmp_path: Path) -> None:
    home = Home.of(tmp_path / "home")

    # In a process of its own: a stack that stops ends all descendants of its process.
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ENGINE, "--home", str(home.path), "engine"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "not installed" in done.stdout + done.stderr
    assert not home.path.exists()


def test_the_last_port_of_a_folder_is_used_again(tmp_path: Path) -> None:
    home = Home.of(tmp_path / "home")
    assert last_port(home) == USUAL_ENGINE_PORT
    home.prepare()
    home.engine_port.write_text("4567")

    assert last_port(home) == 4567
    assert (home.path / ".gitignore").read_text() == "*\n"
