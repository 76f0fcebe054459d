"""A failed job's own log says why, where the service's reason does not."""

from __future__ import annotations

import socket
import time
import uuid
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.plugins.conftest import IMAGE
from trainyard.errors import InfrastructureError, ScriptError
from trainyard_airflow.hooks.job_logs import last_lines
from trainyard_airflow.operators.processing_job import ProcessingJobOperator

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

# Algo-1 loses its peer as ranks do: its connection to algo-2 ends with that process, and not before its last words.
CONNECTED = """
import json, os, pathlib, socket, sys, time
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
host = json.loads((base / "config/resourceconfig.json").read_text())["current_host"]

def connected():
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            return socket.create_connection(("algo-2", 29511))
        except OSError:
            time.sleep(0.05)
    sys.exit("algo-2 does not listen")

if host == "algo-2":
    listener = socket.create_server(("", 29511))
    peer, _ = listener.accept()
else:
    peer = connected()
    peer.recv(1)
"""
RAISES_ON_ALGO_2 = (
    CONNECTED
    + """
if host == "algo-2":
    raise ValueError("the data has no column age")
print("RuntimeError: Connection closed by peer")
sys.exit(1)
"""
)
RANK_KILLED = r'''
import sys
print("""
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 0)
  exitcode  : -9 (pid: 28)
  traceback : Signal 9 (SIGKILL) received by PID 28
""")
sys.exit(1)
'''


def fail(task: Any, folder: Any, source: str, *, instance_count: int = 1) -> None:
    """Run a processing job whose reason is a bare exit code."""
    (folder / "job.py").write_text(source)
    made = ProcessingJobOperator(
        task_id="train",
        deferrable=False,
        stream_logs=False,
        spec={
            "entry_point": "job.py",
            "source_dir": str(folder),
            "instance_type": "ml.m5.large",
            "instance_count": instance_count,
            "image_uri": IMAGE,
        },
    )
    type(made).execute.__wrapped__(made, task.context)


def test_traceback_of_the_host_that_raised_is_quoted(aws_connection, task, tmp_path):
    with pytest.raises(ScriptError, match="ValueError: the data has no column age"):
        fail(task, tmp_path, RAISES_ON_ALGO_2, instance_count=2)

    log_tail = task.xcoms["failed_job"]["log_tail"]
    assert log_tail[-1] == "ValueError: the data has no column age"
    assert any(line.startswith("Traceback") for line in log_tail)


def test_killed_rank_is_told_from_a_script_that_failed(aws_connection, task, tmp_path):
    with pytest.raises(InfrastructureError, match="killed from outside"):
        fail(task, tmp_path, RANK_KILLED)


def test_log_that_cannot_be_read_is_no_further_failure(caplog):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    nobody = boto3.client(
        "logs",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106
        config=Config(retries={"total_max_attempts": 1}),
    )
    assert last_lines(nobody, group="/aws/sagemaker/TrainingJobs", job_name="job") == []
    assert "cannot be read" in caplog.text


def write_streams(logs: Any, *, group: str, hosts: int, starts: int) -> None:
    """Write a log stream for each host and start, as CloudWatch has them; each line names its stream."""
    logs.create_log_group(logGroupName=group)
    for start in range(1, starts + 1):
        for host in range(1, hosts + 1):
            stream = {
                "logGroupName": group,
                "logStreamName": f"job/algo-{host}-{1_700_000_000 + start}",
            }
            logs.create_log_stream(**stream)
            moment = round(time.time() * 1000) + start
            events = [{"timestamp": moment, "message": f"host {host} start {start}"}]
            logs.put_log_events(**stream, logEvents=events)


def test_the_newest_stream_of_every_host_is_read_however_many_there_are(engine):
    logs, group = engine.client("logs"), f"/tests/{uuid.uuid4().hex[:8]}"
    write_streams(logs, group=group, hosts=18, starts=3)

    ends = last_lines(logs, group=group, job_name="job")

    assert sorted(each.host for each in ends) == sorted(f"algo-{n}" for n in range(1, 19))
    assert {each.lines for each in ends} == {(f"host {n} start 3",) for n in range(1, 19)}


RAISES_BESIDE_LOST_PEERS = (
    CONNECTED
    + """
if host == "algo-2":
    print("ValueError: the data has no column age")
    print("RuntimeError: [gloo/tcp/pair.cc:538] Connection closed by peer [10.0.0.1]:4242")
else:
    print("torch.distributed.DistBackendError: NCCL error: remote process exited, ncclRemoteError")
    print("[rank0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)")
sys.stdout.flush()
sys.exit(1)
"""
)


def test_what_a_host_raised_goes_before_the_peers_that_it_and_others_lost(
    aws_connection, task, tmp_path
):
    with pytest.raises(ScriptError, match="ValueError: the data has no column age"):
        fail(task, tmp_path, RAISES_BESIDE_LOST_PEERS, instance_count=2)

    assert task.xcoms["failed_job"]["log_tail"][-1] == "ValueError: the data has no column age"
