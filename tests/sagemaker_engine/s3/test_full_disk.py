"""A full disk: what is refused names the folder, what frees space works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import EVENT_LIMIT_S

REPOSITORY = Path(__file__).parents[3]
SCRIPT = """
import http.client, json, os, sys
from pathlib import Path
from sagemaker_engine.http.server import serve
from sagemaker_engine.s3.application import S3Application
from sagemaker_engine.s3.object_store import ObjectStore

root = Path(sys.argv[1])
store = ObjectStore(root)
store.create_bucket("data-bucket")
server = serve(S3Application(store))

def send(method, body=None, key="k"):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    connection.request(method, f"/data-bucket/{key}", body=body)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()

answers = [send("PUT", b"x" * (4 << 20))]
with (root.parent / "ballast").open("wb", buffering=0) as ballast:
    try:
        while True:
            ballast.write(b"x" * 4096)
    except OSError:
        pass
answers += [send("PUT", b"y" * (1 << 20), "new"), send("GET"), send("DELETE")]
store.blobs.reaper.wait()
answers += [send("GET"), send("PUT", b"y" * (1 << 20), "new")]
print(json.dumps([(status, body[:1000]) for status, body in answers]))
sys.stdout.flush()
server.shutdown()
"""
ENGINE = "python -m sagemaker_engine --port 0 --warm never --root"


def on_small_disk(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in a mount namespace where `folder` is a disk of 24 MiB."""
    mount = f"mount -t tmpfs -o size=24m none {folder}"
    base = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*base, "sh", "-c", mount], check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine allows no mounts")
    return subprocess.run(
        [*base, "sh", "-c", f"{mount} && {command}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=EVENT_LIMIT_S,
    )


def test_a_full_disk_is_named_and_a_delete_frees_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    disk = tmp_path / "disk"
    disk.mkdir()

    done = on_small_disk(disk, f"PYTHONPATH=include {sys.executable} {script} {disk}/store")

    assert done.returncode == 0, done.stderr
    first, refused, read, deleted, gone, stored = json.loads(done.stdout)
    assert first[0] == 200
    assert refused[0] == 507  # No client retries it.
    assert "<Code>InsufficientStorage</Code>" in refused[1]
    assert f"{disk}/store" in refused[1]
    assert (read[0], deleted[0], gone[0], stored[0]) == (200, 204, 404, 200)


def test_an_engine_that_starts_on_a_full_disk_names_its_folder(tmp_path: Path) -> None:
    fill = f"(dd if=/dev/zero of={tmp_path}/ballast bs=4096 2>/dev/null || true)"
    engine = ENGINE.replace("python", sys.executable)

    done = on_small_disk(tmp_path, f"mkdir {tmp_path}/state && {fill} && {engine} {tmp_path}/state")

    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("the engine cannot start: the disk that holds ")
    assert f"{tmp_path}/state" in done.stderr
    assert "Traceback" not in done.stderr
