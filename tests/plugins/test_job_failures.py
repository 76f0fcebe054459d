"""A failed job's own log says why, where the service's reason does not."""

from __future__ import annotations

import socket
from typing import Any

import boto3
import pytest
from botocore.config import Config

from distributed_training.hooks.job_logs import last_lines
from distributed_training.operators.processing_job import ProcessingJobOperator
from include.errors import InfrastructureError, ScriptError
from tests.plugins.conftest import IMAGE

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

RAISES_ON_ALGO_2 = """
import json, os, pathlib, sys
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
host = json.loads((base / "config/resourceconfig.json").read_text())["current_host"]
if host == "algo-2":
    raise ValueError("the data has no column age")
print("RuntimeError: Connection closed by peer")
sys.exit(1)
"""
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
