"""One instance runs commands on another as by OpenSSH, with the job's key alone."""

from __future__ import annotations

import venv
from typing import TYPE_CHECKING

import pytest

from images.mpi.smddprun import rank_environment
from images.mpi.ssh import read_arguments
from sagemaker_engine.images.mpi_runtime import NoKeyError, make_key
from sagemaker_engine.sandbox import capabilities

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.sagemaker_engine.jobs.conftest import JobBench

OWN = ("mount", "pid", "net", "overlay")
# The first instance talks, the second listens, until the first has said by the second's ssh that it is done.
CONVERSATION = """
set -eu
if [ "$CURRENT_HOST" = algo-2 ]; then
    echo mine >> /etc/environment
    GREETING=hello /usr/sbin/sshd -D &
    mkfifo /tmp/over
    read line < /tmp/over
    exit 0
fi
until ssh -x -o BatchMode=yes algo-2 test -p /tmp/over 2> /tmp/refused; do sleep 0.1; done
ssh algo-2 'echo "$GREETING from $(hostname)"; echo trouble >&2' 2> /tmp/stderr
cat /tmp/stderr
ssh root@algo-2 exit 7 || echo "status $?"
echo said | ssh algo-2 cat
ssh algo-2 tail -n 1 /etc/environment
mv ~/.ssh/id_ecdsa /tmp/key
python -c 'import paramiko; paramiko.ECDSAKey.generate().write_private_key_file("/opt/home/.ssh/id_ecdsa")'
ssh algo-2 true 2> /tmp/stranger || echo "stranger $?"
mv /tmp/key ~/.ssh/id_ecdsa
ssh algo-2 'echo done > /tmp/over' 2> /dev/null || true  # it may end before it has answered
"""


@pytest.mark.engine
@pytest.mark.parametrize(
    "features",
    [
        pytest.param(("user", *OWN), id="in-a-user-namespace", marks=pytest.mark.slow),
        pytest.param(OWN, id="as-root"),
    ],
)
def test_an_instance_runs_commands_on_another(bench: JobBench, features: tuple[str, ...]) -> None:
    refusal = capabilities.works(features, bench.settings.root)
    if refusal is not None:
        pytest.skip(f"this machine does not allow {features}: {refusal}")
    capabilities.keep(bench.settings.root / "sandbox.json", features)
    flags = {"sagemaker_mpi_enabled": "true"}

    row = bench.run("job", CONVERSATION, instances=2, HyperParameters=flags)

    assert row.status == "Completed", [row.state, bench.log("job"), bench.log("job", "algo-2")]
    assert bench.log("job") == [
        "hello from algo-2",
        "trouble",
        "status 7",
        "said",
        "mine",
        "stranger 255",
    ]


@pytest.mark.parametrize(
    ("arguments", "host", "command"),
    [
        (["-x", "algo-2", "prted", "--daemonize"], "algo-2", "prted --daemonize"),
        (["-o", "BatchMode=yes", "-p", "22", "root@algo-2", "touch", "x"], "algo-2", "touch x"),
        (["-oBatchMode=yes", "-T", "algo-2", "a; b"], "algo-2", "a; b"),
    ],
)  # fmt: skip
def test_ssh_reads_over_its_options(arguments: Sequence[str], host: str, command: str) -> None:
    assert read_arguments(arguments) == (host, command)


def test_an_image_without_paramiko_is_told_what_it_lacks(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)

    with pytest.raises(NoKeyError, match=r"package `paramiko`.*No module named 'paramiko'"):
        make_key(tmp_path / "mpi", python=tmp_path / "bare" / "bin" / "python")

    assert list((tmp_path / "mpi").iterdir()) == []


def test_ssh_without_a_command_is_refused() -> None:
    with pytest.raises(ValueError, match="usage: ssh"):
        read_arguments(["-v", "algo-2"])


def test_smddprun_tells_torch_which_rank_it_is() -> None:
    told = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "HOME": "/opt/home"}

    assert rank_environment(told) == {"RANK": "3", "LOCAL_RANK": "1"}
