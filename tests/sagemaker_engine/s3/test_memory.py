"""Memory stays flat whatever an object's size: seen from outside the server's process."""

from __future__ import annotations

import http.client
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[3]
SERVER = """
import sys, threading
from pathlib import Path
from sagemaker_engine.http.server import serve
from sagemaker_engine.s3.application import S3Application
from sagemaker_engine.s3.object_store import ObjectStore
print(serve(S3Application(ObjectStore(Path(sys.argv[1])))).port, flush=True)
sys.stdin.read()
"""
OBJECT_BYTES = 128 << 20
PIECE = bytes(range(256)) * 4096
ALLOWED_KB = 24_000
"""Room for the buffers and the allocator's slack: a fifth of one object."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Yield (process id, port)."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.terminate()


def peak_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def pieces() -> Iterator[bytes]:
    for _ in range(OBJECT_BYTES // len(PIECE)):
        yield PIECE


def test_put_get_copy_and_multipart_of_a_large_object_need_no_memory(
    server: tuple[int, int],
) -> None:
    pid, port = server
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def send(method: str, target: str, body: object = None, **headers: str) -> bytes:
        connection.request(method, target, body, headers)  # type: ignore[arg-type]
        response = connection.getresponse()
        assert response.status in {200, 206}, response.read()
        first = response.read(4096)
        while response.read(1 << 20):
            pass
        return first

    send("PUT", "/bucket")
    send("PUT", "/bucket/warm-up", b"1")
    before = peak_kb(pid)
    length = {"Content-Length": str(OBJECT_BYTES)}
    send("PUT", "/bucket/large", pieces(), **length, **{"x-amz-checksum-crc32c": "AAAAAA=="})
    send("GET", "/bucket/large")
    send("PUT", "/bucket/copy", **{"x-amz-copy-source": "/bucket/large", "Content-Length": "0"})
    begun = send("POST", "/bucket/joined?uploads").decode()
    upload = begun.partition("<UploadId>")[2].partition("<")[0]
    copied = send(
        "PUT",
        f"/bucket/joined?uploadId={upload}&partNumber=1",
        **{"x-amz-copy-source": "/bucket/large", "Content-Length": "0"},
    ).decode()
    etag = copied.partition("<ETag>")[2].partition("<")[0]
    part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
    document = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()
    send("POST", f"/bucket/joined?uploadId={upload}", document)
    connection.close()
    assert peak_kb(pid) - before < ALLOWED_KB
