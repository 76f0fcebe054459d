"""Killed at any moment, the store has the old or the new object, and cleans up after the dead."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sagemaker_engine.s3.object_store import ObjectStore

BUCKET = "data-bucket"
REPOSITORY = Path(__file__).resolve().parents[3]
KEYS = 8
WRITER = """
import hashlib, itertools, sys
from pathlib import Path
from sagemaker_engine.s3.object_store import ObjectStore
from sagemaker_engine.s3.objects import ObjectAttributes
from sagemaker_engine.s3 import uploads
store = ObjectStore(Path(sys.argv[1]))
for number in itertools.count():
    key = f"k{number % 8}"
    body = number.to_bytes(4, "big") * 200_000
    kept = ObjectAttributes(metadata={"number": str(number)})
    if number % 3 == 2:
        upload = uploads.create_upload(store, "data-bucket", key, attributes=kept)
        halves = [body[:400_000], body[400_000:]]
        parts = []
        for at, half in enumerate(halves, 1):
            with store.blobs.stage(__import__("io").BytesIO(half)) as staged:
                parts.append(uploads.add_part(store, upload, at, staged, checksums={}))
        uploads.complete_upload(store, upload, parts, checksums={})
    else:
        store.put("data-bucket", key, body, attributes=kept)
    if number % 5 == 4:
        store.delete("data-bucket", f"k{(number + 3) % 8}")
    print(number, flush=True)
"""


def start_writer(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )


def check_whole(store: ObjectStore) -> dict[str, int]:
    """Return the number each key holds, after comparing all bytes with it."""
    numbers: dict[str, int] = {}
    for key in [f"k{number}" for number in range(KEYS)]:
        listed = list(store.list(BUCKET, key))
        for info in listed:
            number = int(info.metadata["number"])
            body = store.path(BUCKET, key).read_bytes()
            assert body == number.to_bytes(4, "big") * 200_000
            assert info.size == len(body)
            if "-" not in info.etag:
                assert info.etag == hashlib.md5(body, usedforsecurity=False).hexdigest()
            numbers[key] = number
    return numbers


@pytest.mark.parametrize("written", [1, 7, 12, 23])
def test_a_killed_writer_leaves_only_whole_objects(tmp_path: Path, written: int) -> None:
    store = ObjectStore(tmp_path)
    store.create_bucket(BUCKET)
    with start_writer(tmp_path) as writer:
        assert writer.stdout is not None
        last = -1
        while last < written:
            last = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        last = max([last, *(int(line) for line in writer.stdout.read().split())])
    numbers = check_whole(store)
    # The write after the last one reported may or may not have happened; no other may be missing.
    assert max(numbers.values()) in {last, last + 1}
    store.recover()
    store.blobs.reaper.wait()
    assert check_whole(store) == numbers
    assert store.recover() == (0, 0)
    with store.index.read() as db:
        used = {
            blob for (blob,) in db.execute("SELECT blob FROM objects UNION SELECT blob FROM parts")
        }
    assert set(store.blobs.names()) == used
    store.put(BUCKET, "after", b"works on")
    store.index.close()


def test_what_a_dead_process_was_writing_is_swept_and_what_a_living_one_writes_is_not(
    tmp_path: Path,
) -> None:
    store = ObjectStore(tmp_path)
    store.create_bucket(BUCKET)
    read_end, write_end = os.pipe()
    script = (
        "import sys\nfrom pathlib import Path\nfrom sagemaker_engine.s3.object_store import ObjectStore\n"
        "ObjectStore(Path(sys.argv[1])).put('data-bucket', 'k', sys.stdin.buffer)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], cwd=REPOSITORY, stdin=read_end
    ) as writer:
        os.close(read_end)
        with os.fdopen(write_end, "wb", buffering=0) as pipe:
            # The pipe holds 64 KiB: once this returns, the writer is reading into its staged file.
            pipe.write(b"x" * 200_000)
            assert store.recover()[0] == 0
            assert len(list((tmp_path / "staging").iterdir())) == 1
            writer.kill()
            writer.wait()
            assert store.recover()[0] == 1
    assert list((tmp_path / "staging").iterdir()) == []
    assert list(store.list(BUCKET)) == []
    store.index.close()


def test_a_failing_source_leaves_the_old_object_and_no_trace(tmp_path: Path) -> None:
    class Breaks:
        def __init__(self) -> None:
            self._left = 3

        def readinto(self, buffer: memoryview) -> int:
            self._left -= 1
            if not self._left:
                raise OSError("the source broke")
            return len(buffer)

    store = ObjectStore(tmp_path)
    store.create_bucket(BUCKET)
    store.put(BUCKET, "k", b"old")
    with pytest.raises(OSError, match="the source broke"):
        store.put(BUCKET, "k", Breaks())  # type: ignore[arg-type]
    assert store.path(BUCKET, "k").read_bytes() == b"old"
    assert [path.name for path in (tmp_path / "staging").rglob("*") if path.is_file()] == ["lock"]
    store.index.close()
