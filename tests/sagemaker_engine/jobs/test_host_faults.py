"""Faults that leave the hosts there, on real instances."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.sandbox import capabilities
from sagemaker_engine.state.jobs import ResourceKind
from tests.sagemaker_engine.jobs.conftest import (
    BUCKET,
    SPOT,
    JobBench,
    channel,
    put_faults,
    wait_for,
)

if TYPE_CHECKING:
    from pathlib import Path

TICKING = "while [ $((n = n + 1)) -le 30 ]; do echo tick step=$n; sleep 0.05; done"
"""Takes 1.5 s where nothing hinders it."""


def needs(feature: str, folder: Path) -> None:
    if feature not in capabilities.features(folder / "sandbox.json"):
        pytest.skip(f"this machine gives instances no {feature} namespace")


def training_s(bench: JobBench, name: str) -> float:
    transitions = bench.row(name).state["SecondaryStatusTransitions"]
    training = next(each for each in transitions if each["Status"] == "Training")
    return float(training["EndTime"] - training["StartTime"])


def test_killed_rank_is_found_by_its_launcher(bench: JobBench) -> None:
    put_faults(bench, {"what": "kill_rank", "at": {"step": 1}, "hosts": ["algo-2"]})
    launcher = "RANK=1 sh -c 'echo step=1; sleep 60; true'; code=$?; echo rank ended $code; exit 9"

    row = bench.run("job", f"[ $(hostname) = algo-1 ] && exec sleep 60; {launcher}", instances=2)

    assert row.status == "Failed"
    assert row.state["FailureReason"].endswith("exit code: 9")
    assert "rank ended 137" in bench.log("job", "algo-2")


def test_host_that_hangs_goes_on_after_its_time(bench: JobBench) -> None:
    put_faults(bench, {"what": "hang", "at": {"step": 3}, "duration_s": 1.5})

    row = bench.run("job", TICKING)

    assert row.status == "Completed"
    assert training_s(bench, "job") >= 3.0


def test_host_that_hangs_for_ever_can_be_stopped(bench: JobBench) -> None:
    fault_store = put_faults(bench, {"what": "hang", "at": {"step": 1}})
    bench.train("job", "echo step=1; sleep 60; true")
    wait_for(fault_store.entries, lambda entries: bool(entries[0].fired_at))

    bench.store.request_stop(ResourceKind.TRAINING, "job", at=time.time())

    assert bench.wait("job").status == "Stopped"


COUNTING = """
began=$(date +%s%N); n=0; while [ $n -lt 300000 ]; do n=$((n + 1)); done; ended=$(date +%s%N)
read -r _ _ _ _ _ _ _ _ _ _ _ _ _ user system _ < /proc/$$/stat
echo $((user + system)) $(getconf CLK_TCK) $((ended - began))
"""


@pytest.mark.slow
def test_slow_host_runs_a_share_of_the_time(bench: JobBench) -> None:
    """The share of a loop's time in which it had a processor: on a busy machine it is only smaller."""
    put_faults(bench, {"what": "slow", "factor": 0.2})

    bench.run("slow", COUNTING)

    ticks, ticks_per_s, took_ns = map(int, bench.log("slow")[-1].split())
    assert 0.01 < ticks / ticks_per_s / (took_ns / 1e9) < 0.4


ECHO = """
import socket, time
if socket.gethostname() == "algo-1":
    other, _ = socket.create_server(("algo-1", 7000)).accept()
    while data := other.recv(1):
        other.sendall(data)
else:
    for _ in range(200):
        try:
            other = socket.create_connection(("algo-1", 7000))
            break
        except OSError:
            time.sleep(0.05)
    longest = 0.0
    while longest < 1:
        said_at = time.monotonic()
        other.sendall(b"x")
        other.recv(1)
        longest = max(longest, time.monotonic() - said_at)
        print("step=1", flush=True)
    print("longest wait", longest, flush=True)
    other.close()
"""
"""algo-2 says a byte again and again and waits for its echo, until one takes longer than a second."""


def test_cut_link_drops_what_hosts_say_to_each_other_until_it_is_mended(
    bench: JobBench, tmp_path: Path
) -> None:
    needs("net", tmp_path)
    put_faults(bench, {"what": "cut_link", "at": {"step": 1}, "duration_s": 4})
    bench.objects.put(BUCKET, "data/echo.py", ECHO.encode())
    data = channel("train", f"s3://{BUCKET}/data/")

    row = bench.run(
        "job", "exec python3 /opt/ml/input/data/train/echo.py", instances=2, InputDataConfig=[data]
    )

    assert row.status == "Completed", bench.log("job", "algo-2")[-5:]
    assert bench.log("job", "algo-2")[-1].startswith("longest wait")


def test_full_disk_takes_no_checkpoint_until_there_is_room_again(
    bench: JobBench, tmp_path: Path
) -> None:
    needs("mount", tmp_path)
    put_faults(bench, {"what": "disk_full", "at": {"step": 1}, "duration_s": 1.5})
    bench.objects.put(BUCKET, "checkpoints/before", b"before\n")
    script = """
    cd /opt/ml/checkpoints; cat before || exit 1
    echo step=1; mkdir part; while head -c 9000 /dev/zero > part/$((n = n + 1)); do sleep 0.05; done
    rm -r part; echo freed
    until head -c 99000 /dev/zero > last; do sleep 0.1; done
    """

    row = bench.run("job", script, **SPOT)

    assert row.status == "Completed", row.state
    assert any("No space left on device" in line for line in bench.log("job"))
    assert bench.keys("checkpoints/") == ["checkpoints/before", "checkpoints/last"]


def test_fault_that_cannot_be_is_told_in_the_log(bench: JobBench) -> None:
    put_faults(bench, {"id": "f", "what": "disk_full", "at": {"step": 1}})

    bench.run("job", "echo step=1; sleep 0.5")

    told = "trainyard engine: fault f (disk_full) has no effect: the checkpoint folder is not on a separate disk"
    assert any(line.startswith(told) for line in bench.log("job"))
