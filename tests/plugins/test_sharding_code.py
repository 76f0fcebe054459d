"""The code of a sharding job's instances is complete without the rest of the tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

from trainyard_airflow.hooks import shard_part
from trainyard_airflow.jobs.sharding_job import archive_files

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_modules_of_the_archive_import_each_other_only(tmp_path: Path) -> None:
    for name, path in archive_files():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    modules = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name, _ in archive_files()
    ]
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {', '.join(modules)}"

    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_requests_to_s3_are_those_of_the_jobs_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed: list[str] = []

    class Absent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            signed.append(self.headers["Authorization"])
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    for name, value in {
        "AWS_REGION": "cn-north-1",  # as SageMaker sets it, which boto3 does not read
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "OPENBLAS_NUM_THREADS": "1",
        "SAGEMAKER_BASE_DIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    with HTTPServer(("127.0.0.1", 0), Absent) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            code = shard_part.main(["--plan", "s3://bucket/plan.json", "--region", "cn-north-1"])
        finally:
            server.shutdown()
            thread.join()

    assert code == 1
    assert "/cn-north-1/s3/aws4_request" in signed[0]
