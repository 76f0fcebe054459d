"""A SIGTERM to process 1 reaches the ranks, and nothing else that runs beside or below them."""

from __future__ import annotations

import ast
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.limits import EVENT_LIMIT_S
from trainyard.sagemaker_api import sigterm_relay
from trainyard.sagemaker_api.training_request import LONGEST_ARGUMENT, forwarding_entrypoint
from trainyard.specs.strategies.torch_distributed import RANK_RESTARTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A launcher that forks nothing before its rank, and ends as the rank does.
LAUNCHER = """
import subprocess, sys
print("launched", flush=True)
sys.exit(subprocess.call([sys.executable, "-u", "train.py"]))
"""
# A rank with a process of its own, as a data loader has: only the rank may be told.
RANK = """
import os, signal, sys
os.write(1, b"rank ready\\n")
loader = os.fork()
if loader == 0:
    signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"loader told\\n"))
    signal.pause()
def told(*_):
    os.write(1, b"rank told\\n")
    os.kill(loader, signal.SIGKILL)
    os._exit(43)
signal.signal(signal.SIGTERM, told)
os.write(1, b"waiting\\n")
while True:
    signal.pause()
"""


# A launcher that starts its rank again, as torchrun does under PET_MAX_RESTARTS.
RESTARTING_LAUNCHER = """
import os, subprocess, sys
print("launched", flush=True)
subprocess.call([sys.executable, "-u", "train.py"])
print("started again", flush=True)
sys.exit(subprocess.call([sys.executable, "-u", "train.py"]))
"""


@pytest.fixture
def container(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """Process 1 of a container whose toolkit starts a launcher that starts one rank; `param` is another launcher."""
    launcher = getattr(request, "param", LAUNCHER)
    (tmp_path / "launcher").write_text(launcher)
    (tmp_path / "train.py").write_text(RANK)
    toolkit = tmp_path / "train"
    toolkit.write_text(f"#!/bin/sh\n{sys.executable} launcher --nnodes 1 train.py; exit $?\n")
    toolkit.chmod(0o755)
    entrypoint, arguments = forwarding_entrypoint("train.py")
    environment = {"TRAINING_JOB_NAME": f"job-{os.getpid()}", "CURRENT_HOST": "algo-1"}
    if launcher == RESTARTING_LAUNCHER:
        environment |= RANK_RESTARTS
    with subprocess.Popen(
        [sys.executable, *entrypoint[1:], *arguments],
        cwd=tmp_path,
        env={**os.environ, **environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    ) as process:
        yield process
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the process table of Linux")
def test_sigterm_reaches_the_rank_alone_and_its_exit_status_comes_back(
    container: subprocess.Popen[bytes],
) -> None:
    assert said_until(container, b"waiting") == [b"launched", b"rank ready", b"waiting"]

    container.send_signal(signal.SIGTERM)

    assert container.wait(EVENT_LIMIT_S) == 43
    assert container.stdout is not None
    assert container.stdout.read().splitlines() == [b"rank told"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the process table of Linux")
@pytest.mark.parametrize("container", [RESTARTING_LAUNCHER], indirect=True, ids=["restarting"])
def test_a_launcher_that_starts_its_ranks_again_at_once_is_ended_all_the_same(
    container: subprocess.Popen[bytes],
) -> None:
    said_until(container, b"waiting")

    container.send_signal(signal.SIGTERM)

    assert container.wait(EVENT_LIMIT_S) == 128 + signal.SIGTERM
    assert container.stdout is not None
    os.killpg(container.pid, signal.SIGKILL)  # as the container's end does
    assert container.stdout.read().splitlines()[0] == b"rank told"


def test_the_request_takes_the_entry_point() -> None:
    entrypoint, arguments = forwarding_entrypoint("train_ddp.py")
    assert arguments[0] == "train_ddp.py"
    assert max(map(len, (*entrypoint, *arguments))) <= LONGEST_ARGUMENT
    assert len(arguments) <= 100


@pytest.mark.parametrize(
    ("command", "is_rank"),
    [
        ("/opt/conda/bin/python -u train.py --max_steps 9", True),
        ("/bin/python -I /warm/bin/python3.11 -u /opt/ml/code/train.py", True),
        ("/opt/conda/bin/python -m train --max_steps 9", True),
        ("/opt/conda/bin/python -m mpi4py -m train", True),
        ("mpirun --host algo-1 python -m mpi4py -m train", False),
        ("/opt/conda/bin/python /opt/conda/bin/train", False),
        ("/bin/python /opt/conda/bin/torchrun --nnodes 2 train.py", False),
        ("bash -m start_with_right_hostname.sh train", False),
        ("python3 -c import train.py", False),
        ("", False),
    ],
    ids=[
        *("rank", "warm", "package", "rank of a package", "mpirun", "process 1"),
        *("launcher", "toolkit", "relay", "kernel"),
    ],
)
def test_only_the_interpreter_that_runs_the_program_is_a_rank(command: str, is_rank: bool) -> None:
    arguments = command.split(" ", 2) if "-c" in command else command.split(" ")
    assert sigterm_relay.runs(arguments, "train.py") is is_rank


def test_the_relay_needs_no_python_after_3_6() -> None:
    """Annotations are left out: PEP 563's import is a syntax error in Python 3.6, and `set[int]` fails before 3.9."""
    _, (_, *lines) = forwarding_entrypoint("train.py")

    tree = ast.parse("\n".join(lines), feature_version=(3, 6))

    nodes = list(ast.walk(tree))
    assert not [each for each in nodes if getattr(each, "module", None) == "__future__"]
    assert not [each for each in nodes if isinstance(each, ast.arg) and each.annotation]
    assert not [each for each in nodes if isinstance(each, ast.FunctionDef) and each.returns]


def said_until(process: subprocess.Popen[bytes], last: bytes) -> list[bytes]:
    """Return the lines up to `last`; the pipe has no buffer here, in which a line could wait unseen."""
    assert process.stdout is not None
    lines: list[bytes] = []
    while not lines or lines[-1] != last:
        ready, _, _ = select.select([process.stdout], [], [], EVENT_LIMIT_S)
        assert ready, f"after {lines}: nothing"
        lines.append(process.stdout.readline().rstrip())
    return lines
