"""Old checkpoints are deleted once a newer one is whole in S3: asked at a real S3, where files arrive one by one."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import time
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from trainyard_watch import watch
from trainyard_watch.distributed import Ranks
from trainyard_watch.environment import BASE_VARIABLE, ContainerPaths
from trainyard_watch.model_limit import ModelLimit
from trainyard_watch.retention import CHECKPOINT_VARIABLE, LocalLayout, ManifestLayout, Retention
from trainyard_watch.s3_prefix import S3Prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import RunningEngine
    from tests.training_scripts.conftest import ContainerJob

MODEL = b"weights of a model"


@pytest.fixture
def prefix(engine: RunningEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give this process what a container has to reach S3, and return an empty prefix."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", engine.endpoint_url)
    monkeypatch.setenv("AWS_REGION", engine.region)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    return f"s3://{engine.bucket}/{tmp_path.name}/checkpoints"


def write(folder: Path, step: int) -> Path:
    path = folder / f"step-{step:08d}"
    path.mkdir(parents=True)
    (path / "model.pt").write_bytes(MODEL)
    files = {"model.pt": {"bytes": len(MODEL)}}
    (path / "manifest.json").write_text(json.dumps({"files": files}))
    return path


def arrive(prefix: str, path: Path, *names: str, content: bytes | None = None) -> None:
    for name in names or [file.name for file in path.iterdir()]:
        data = content if content is not None else (path / name).read_bytes()
        S3Prefix(prefix).write(f"{path.name}/{name}", data)


def left(folder: Path) -> list[int]:
    return sorted(int(path.name.partition("-")[2].partition(".")[0]) for path in folder.iterdir())


def retention_of(folder: Path, prefix: str | None, **more: Any) -> Retention:
    s3 = S3Prefix(prefix) if prefix else None
    return Retention(ManifestLayout(folder), keep=1, s3=s3, is_synced=True, **more)


def test_nothing_goes_before_a_newer_checkpoint_is_whole_in_s3(tmp_path: Path, prefix: str) -> None:
    retention = retention_of(tmp_path / "c", prefix, asked_every_s=3600.0)
    paths = {step: write(tmp_path / "c", step) for step in (1, 2, 3, 4)}
    for step in paths:
        retention._durable.add(step)  # without the thread: the looks are these

    def left_after(step: int, *names: str, content: bytes | None = None) -> list[int]:
        arrive(prefix, paths[step], *names, content=content)
        retention.look()
        return left(tmp_path / "c")

    assert left_after(1) == [1, 2, 3, 4]  # the oldest: there is nothing it could replace
    assert left_after(3, "manifest.json") == [1, 2, 3, 4]
    assert left_after(3, "model.pt", content=MODEL[:-1]) == [1, 2, 3, 4]  # while it grows
    assert left_after(2) == [2, 3, 4]
    assert left_after(3, "model.pt") == [3, 4]
    assert left_after(4) == [4]


@pytest.mark.parametrize(
    ("keep", "large_bytes", "rest"),
    [(0, len(MODEL), [3]), (0, len(MODEL) + 1, [2, 3]), (2, len(MODEL), [2, 3])],
    ids=["large", "small", "a number of one's own"],
)
def test_of_large_checkpoints_only_one_whole_in_s3_is_restored_at_a_restart(
    tmp_path: Path,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    keep: int,
    large_bytes: int,
    rest: list[int],
) -> None:
    """Every host downloads all of them before it trains. The newest one here is still on its way."""
    monkeypatch.setattr("trainyard_watch.retention.LARGE_BYTES", large_bytes)
    folder = tmp_path / "c"
    retention = Retention(ManifestLayout(folder), keep=keep, s3=S3Prefix(prefix), is_synced=True)
    for step in (1, 2, 3):
        retention._durable.add(step)
        arrive(prefix, write(folder, step))
    retention.look()
    assert left(folder) == rest

    write(folder, 4)
    retention._durable.add(4)
    retention.look()

    assert left(folder) == [3, 4]


def test_a_thread_of_its_own_asks_until_the_newest_has_arrived(tmp_path: Path, prefix: str) -> None:
    gone = tmp_path / "c" / "step-00000001"
    retention = retention_of(tmp_path / "c", prefix, asked_every_s=0.05)
    write(tmp_path / "c", 1)
    retention.note_durable(1)
    second = write(tmp_path / "c", 2)
    retention.note_durable(2)

    arrive(prefix, second)

    wait_until(lambda: not gone.exists())


def test_a_model_after_a_stop_waits_until_the_checkpoint_has_arrived(
    tmp_path: Path, prefix: str
) -> None:
    retention = retention_of(tmp_path / "c", prefix, asked_every_s=3600.0)
    newest = write(tmp_path / "c", 7)
    retention.note_durable(7)
    limit = ModelLimit(Ranks(), retention)
    limit.note_checkpoint(seconds=6.0, num_bytes=12_000_000_000)  # so that 4 GB take 4 s

    def obstacle(num_bytes: int, *, seconds_left: float) -> str | None:
        return limit.obstacle(num_bytes, seconds_left=seconds_left, grace_s=120.0)

    delayed = obstacle(4_000_000_000, seconds_left=14.5)
    brief = obstacle(2_000_000_000, seconds_left=14.5)
    arrive(prefix, newest)

    assert "the checkpoint has not arrived in S3" in (delayed or "")
    assert brief is None
    assert obstacle(4_000_000_000, seconds_left=100.0) is None


def test_arrival_is_not_awaited_if_s3_never_answers(tmp_path: Path, prefix: str) -> None:
    retention = retention_of(tmp_path / "c", "s3://no-such-bucket-anywhere/c")
    write(tmp_path / "c", 7)
    retention.note_durable(7)

    assert retention.await_arrival(100.0)


def test_a_checkpoint_that_bears_the_name_of_a_damaged_one_proves_nothing(
    tmp_path: Path, prefix: str
) -> None:
    retention = retention_of(tmp_path / "c", prefix, asked_every_s=3600.0)
    retention._durable |= {1, 2}
    write(tmp_path / "c", 1)
    arrive(prefix, write(tmp_path / "c", 2))  # the damaged one, of the same sizes
    retention.distrust(2)
    retention._durable.add(2)

    retention.look()

    assert left(tmp_path / "c") == [1, 2]


@contextmanager
def unavailable_s3() -> Iterator[str]:
    """Serve 503 to every request, and yield the address."""

    class Unavailable(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Unavailable) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("uri", [None, "s3://no-such-bucket-anywhere/c"])
def test_where_s3_cannot_be_asked_what_is_new_stays_and_the_log_says_so_once(
    tmp_path: Path, prefix: str, uri: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    retention = retention_of(tmp_path / "c", uri, is_restored=False)
    for step in (1, 2, 3):
        write(tmp_path / "c", step)
        retention._durable.add(step)

    with caplog.at_level(logging.WARNING):
        retention.look()
        retention.look()

    assert left(tmp_path / "c") == [1, 2, 3]
    (said,) = caplog.messages
    assert CHECKPOINT_VARIABLE in said
    assert not retention.is_congested


def blind(folder: Path, uri: str | None, *, now: list[float]) -> Retention:
    """Return the retention of a folder with six checkpoints, a minute from each other, that cannot ask S3."""
    s3 = S3Prefix(uri) if uri else None
    layout = ManifestLayout(folder)
    retention = Retention(
        layout, keep=1, s3=s3, is_synced=True, is_restored=False, clock=lambda: now[0]
    )
    for step in range(1, 7):
        write(folder, step)
        retention._note(step)
        now[0] += 60.0
    return retention


@pytest.mark.parametrize("uri", [None, "s3://no-such-bucket-anywhere/c"])
def test_where_s3_cannot_be_asked_age_decides_and_four_newer_ones_stay(
    tmp_path: Path, prefix: str, uri: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    retention = blind(tmp_path / "c", uri, now=now)

    def left_at(minute: float) -> list[int]:
        now[0] = minute * 60.0
        retention.look()
        return left(tmp_path / "c")

    assert left_at(29) == [1, 2, 3, 4, 5, 6]
    assert left_at(30.5) == [1, 2, 3, 4, 5, 6]  # the first has had its time, and replaces none
    assert left_at(31.5) == [2, 3, 4, 5, 6]
    assert left_at(32.5) == [3, 4, 5, 6]
    assert left_at(10_000) == [3, 4, 5, 6]
    (said,) = [each for each in caplog.messages if "BY AGE" in each]
    for word in ("25 MB/s", "30 minutes", "s3:ListBucket", "network isolation"):
        assert word in said


def test_an_outage_of_s3_from_the_start_deletes_nothing(
    tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    with unavailable_s3() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        retention = blind(tmp_path / "c", prefix, now=now)
        now[0] = 1e6
        retention.look()

    assert left(tmp_path / "c") == [1, 2, 3, 4, 5, 6]
    assert "no old checkpoint is deleted until it does" in caplog.messages[-1]


def test_age_leaves_what_the_platform_restored(tmp_path: Path, prefix: str) -> None:
    now = [0.0]
    write(tmp_path / "c", 0)
    retention = blind(tmp_path / "c", "s3://no-such-bucket-anywhere/c", now=now)
    retention.note_found(0)
    now[0] = 1e6

    retention.look()

    assert left(tmp_path / "c") == [0, 3, 4, 5, 6]


def test_what_is_large_has_the_time_of_its_bytes_after_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "trainyard_watch.retention.ASSUMED_BYTES_PER_S", len(MODEL) / 3600
    )  # an hour each
    now = [0.0]
    retention = blind(tmp_path / "c", None, now=now)

    now[0] = 2 * 3600.0  # the second: after two hours, and the manifests' bytes
    retention.look()
    assert left(tmp_path / "c") == [1, 2, 3, 4, 5, 6]

    now[0] = 2 * retention._assumed_at[1]
    retention.look()
    assert left(tmp_path / "c") == [2, 3, 4, 5, 6]


def test_age_says_nothing_once_s3_has_answered(
    tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    retention = blind(tmp_path / "c", prefix, now=now)
    retention.look()
    now[0] = 1e6

    retention.look()
    monkeypatch.setattr(retention, "_s3", S3Prefix("s3://no-such-bucket-anywhere/c"))
    retention.look()

    assert left(tmp_path / "c") == [1, 2, 3, 4, 5, 6]
    assert "no old checkpoint is deleted until it does" in caplog.messages[-1]


def test_a_thread_of_its_own_deletes_by_age(tmp_path: Path) -> None:
    now = [0.0]
    retention = blind(tmp_path / "c", None, now=now)
    retention._asked_every_s = 0.02
    retention.note_durable(6)

    now[0] = 3600.0  # with nothing that wakes it

    wait_until(lambda: left(tmp_path / "c") == [3, 4, 5, 6])


def test_what_the_platform_restored_was_whole_in_s3(tmp_path: Path) -> None:
    retention = retention_of(tmp_path / "c", None)
    for step in (1, 2, 3):
        write(tmp_path / "c", step)
    retention.note_found(2)
    retention._durable.add(3)

    retention.look()

    assert left(tmp_path / "c") == [2, 3]


def test_without_an_answer_of_s3_large_checkpoints_are_kept_as_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard_watch.retention.LARGE_BYTES", 1)
    retention = Retention(ManifestLayout(tmp_path), keep=0)
    for step in (1, 2, 3):
        write(tmp_path, step)
        retention.note_durable(step)
    assert left(tmp_path) == [2, 3]


def test_a_folder_that_nothing_copies_keeps_the_newest(tmp_path: Path) -> None:
    retention = Retention(ManifestLayout(tmp_path), keep=2)
    for step in (1, 2, 3, 4):
        write(tmp_path, step)
        retention.note_durable(step)

    assert left(tmp_path) == [3, 4]


def test_checkpoints_wait_while_enough_are_on_their_way(tmp_path: Path, prefix: str) -> None:
    retention = retention_of(tmp_path / "c", prefix, asked_every_s=3600.0)
    paths = [write(tmp_path / "c", step) for step in range(1, 5)]
    retention._durable |= {1, 2, 3, 4}
    retention.look()
    assert retention.is_congested

    arrive(prefix, paths[1])
    retention.look()

    assert not retention.is_congested


@pytest.mark.torch
def test_a_loop_skips_checkpoints_while_enough_are_on_their_way(
    tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "ml" / "checkpoints" / "trainyard"
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "ml"))
    monkeypatch.setenv(CHECKPOINT_VARIABLE, prefix)

    with watch(max_steps=8) as run:
        run._folder._retention._asked_every_s = 0.02

        def left_after_a_step() -> list[int]:
            run.step(loss=1.0)
            run.checkpoint({"seen": run.num_steps})
            run._saver.finish()
            return left(folder)

        written = [left_after_a_step() for _ in range(4)][-1]
        wait_until(lambda: run._folder.is_congested)
        congested = [left_after_a_step() for _ in range(2)]
        arrive(f"{prefix}/trainyard", folder / "step-00000001")
        wait_until(lambda: not run._folder.is_congested)
        after = left_after_a_step()
        assert run._folder.is_congested
        last = left_after_a_step()

    assert congested == [written] * 2 == [[1, 2, 3, 4]] * 2
    assert after == [1, 2, 3, 4, 7]
    assert last == [1, 2, 3, 4, 7, 8]
    assert sum("step 5 is SKIPPED" in each for each in caplog.messages) == 1
    assert sum("SKIPPED" in each for each in caplog.messages) == 1


@pytest.mark.torch
def test_ranks_skip_the_checkpoints_of_their_shards_together_but_not_the_one_of_a_stop(
    make_job: Callable[[], ContainerJob], prefix: str
) -> None:
    names = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    environ = {CHECKPOINT_VARIABLE: prefix, **{name: os.environ[name] for name in names}}
    job = make_job()
    job.start(
        main="sharded_loop",
        argv=["fsdp2", "100000", "0.02"],
        world_size=2,
        environ=dict.fromkeys(range(2), environ),
    )

    job.wait_for_line("is SKIPPED")
    job.kill(1, signal.SIGTERM)

    assert job.wait() == [143, 143], job.log()
    steps = re.findall(r"trainyard step=(\d+)", job.log())
    assert left(job.base_dir / "checkpoints" / "trainyard")[-1] == int(steps[-1])


def test_checkpoints_of_one_file_are_whole_with_all_their_files(
    tmp_path: Path, prefix: str
) -> None:
    s3 = S3Prefix(prefix)
    retention = Retention(LocalLayout(tmp_path), keep=1, s3=s3, is_synced=True)
    for step in (1, 2):
        for suffix in ("npz", "sha256"):
            (tmp_path / f"step-{step:08d}.{suffix}").write_bytes(MODEL)
        retention._durable.add(step)

    s3.write("step-00000002.npz", MODEL)
    retention.look()
    assert left(tmp_path) == [1, 1, 2, 2]

    s3.write("step-00000002.sha256", MODEL)
    retention.look()
    assert left(tmp_path) == [2, 2]


@pytest.mark.parametrize(
    ("config", "environ", "uri", "is_synced"),
    [
        ({"S3Uri": "s3://b/c"}, {CHECKPOINT_VARIABLE: "s3://b/other"}, "s3://b/c/", True),
        (None, {CHECKPOINT_VARIABLE: "s3://b/c/"}, "s3://b/c/", True),
        ({"LocalPath": "/opt/ml/checkpoints"}, {}, None, True),
        (None, {"TRAINING_JOB_NAME": "job"}, None, True),
        (None, {}, None, False),
    ],
    ids=["configured", "told", "no address", "mounted", "on its own"],
)
def test_the_address_is_the_containers(
    tmp_path: Path, config: Any, environ: dict[str, str], uri: str | None, is_synced: bool
) -> None:
    file = tmp_path / "input" / "config" / "checkpointconfig.json"
    file.parent.mkdir(parents=True)
    if config is not None:
        file.write_text(json.dumps(config))
    paths = ContainerPaths.from_environment({BASE_VARIABLE: str(tmp_path)})

    made = Retention.of_job(ManifestLayout(tmp_path), keep=1, paths=paths, environ=environ)

    assert made._is_synced is is_synced
    assert (made._s3.uri if made._s3 else None) == uri


def wait_until(is_so: Any, *, limit_s: float = 60.0) -> None:
    ends = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.02)
