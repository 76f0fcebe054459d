"""Several processes on one store: nothing is lost, mixed or blocked."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.object_store import ObjectStore
from sagemaker_engine.s3.objects import WriteCondition

if TYPE_CHECKING:
    from collections.abc import Callable

BUCKET = "data-bucket"
REPOSITORY = Path(__file__).resolve().parents[3]
PROCESSES = 3
OWN_AND_SHARED = """
import sys
from pathlib import Path
from sagemaker_engine.s3.object_store import ObjectStore
store, me = ObjectStore(Path(sys.argv[1])), sys.argv[2]
for number in range(100):
    store.put("data-bucket", f"own/{me}/{number:03}", me.encode())
    store.put("data-bucket", "shared", me.encode() * 50_000)
    with store.open("data-bucket", "shared") as file:
        body = file.read()
    assert len(set(body)) == 1 and len(body) == 50_000, (len(body), set(body))
    if number % 10 == 0:
        store.recover()
"""
CREATE_ONLY = """
import sys
from pathlib import Path
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.object_store import ObjectStore
from sagemaker_engine.s3.objects import WriteCondition
store, me = ObjectStore(Path(sys.argv[1])), sys.argv[2]
absent = WriteCondition(must_be_absent=True)
for number in range(50):
    try:
        store.put("data-bucket", f"k{number}", me.encode(), condition=absent)
        print(number)
    except S3Error as error:
        assert error.code == "PreconditionFailed"
"""


def run_together(root: Path, script: str) -> list[str]:
    """Run `script` in several processes at once and return what each printed."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(root), str(number)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    printed = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * PROCESSES
    return printed


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = ObjectStore(tmp_path / "store")
    store.create_bucket(BUCKET)
    return store


def test_processes_writing_at_once_lose_nothing_and_mix_nothing(store: ObjectStore) -> None:
    run_together(store.root, OWN_AND_SHARED)
    own = [info.key for info in store.list(BUCKET, "own/")]
    assert own == [f"own/{me}/{number:03}" for me in range(PROCESSES) for number in range(100)]
    store.recover()
    store.blobs.reaper.wait()
    assert len(list(store.blobs.names())) == len(own) + 1


def test_create_only_writes_have_one_winner_each(store: ObjectStore) -> None:
    winners = [number for text in run_together(store.root, CREATE_ONLY) for number in text.split()]
    assert sorted(map(int, winners)) == list(range(50))


def test_a_forked_child_writes_beside_its_parent(store: ObjectStore) -> None:
    store.put(BUCKET, "parent/before", b"1")
    child = os.fork()
    if child == 0:
        try:
            for number in range(20):
                store.put(BUCKET, f"child/{number:02}", b"1")
        finally:
            os._exit(0 if len(list(store.list(BUCKET, "child/"))) == 20 else 1)
    for number in range(20):
        store.put(BUCKET, f"parent/{number:02}", b"1")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(store.list(BUCKET))) == 41


def run_threads(work: Callable[[int], None], *, count: int = 6) -> None:
    """Run `work` in threads and raise what any of them raised."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 (raised again below)
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_readers_never_see_a_torn_or_missing_object_while_it_is_replaced(
    store: ObjectStore,
) -> None:
    store.put(BUCKET, "k", b"0" * 10_000)

    def work(me: int) -> None:
        for _ in range(60):
            if me < 2:
                store.put(BUCKET, "k", str(me).encode() * 10_000)
            else:
                info, file = store.open_object(BUCKET, "k")
                with file:
                    body = file.read()
                assert (len(body), len(set(body))) == (info.size, 1)

    run_threads(work)


def test_compare_and_swap_counts_every_increment(store: ObjectStore) -> None:
    store.put(BUCKET, "n", b"0")

    def work(_: int) -> None:
        for _ in range(10):
            while True:
                info, file = store.open_object(BUCKET, "n")
                with file:
                    value = int(file.read())
                condition = WriteCondition(etag=info.etag)
                with contextlib.suppress(S3Error):
                    store.put(BUCKET, "n", str(value + 1).encode(), condition=condition)
                    break

    run_threads(work, count=4)
    assert store.path(BUCKET, "n").read_bytes() == b"40"
