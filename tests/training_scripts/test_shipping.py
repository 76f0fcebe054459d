"""Statistics reach S3 merged by host: at once while it matters, rarely in a long run."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.testing import faults
from trainyard.rules.statistics_bundles import upload_pause_s
from trainyard_watch.s3_prefix import S3Prefix, S3UnavailableError
from trainyard_watch.statistics.parts import PartWriter
from trainyard_watch.statistics.shipping import (
    FIRST_REST_S,
    LONGEST_REST_S,
    PARTS_KEPT,
    READ_BYTES,
    Shipper,
    newest_attempt_in,
    pause_s,
)

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

DAY_S = 86_400
HOSTS, DAYS = 8, 7
DOCS = Path(__file__).resolve().parents[2] / "docs" / "rules.md"


@pytest.fixture
def s3(engine: RunningEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Prefix:
    monkeypatch.setenv("AWS_ENDPOINT_URL", engine.endpoint_url)
    monkeypatch.setenv("AWS_REGION", engine.region)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    return S3Prefix(f"s3://{engine.bucket}/{tmp_path.name}/statistics")


class Ticks:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def header(rank: int) -> dict[str, Any]:
    return {"format": "trainyard-statistics", "rank": rank, "attempt": 1}


def s3_keys(engine: RunningEngine, prefix: str) -> list[str]:
    folder = engine.client("s3").list_objects(Bucket=engine.bucket, Prefix=prefix)
    return [each["Key"] for each in folder.get("Contents", ())]


def line(step: int, **more: Any) -> bytes:
    return (
        json.dumps({"kind": "step", "step": step, **more}, separators=(",", ":")).encode() + b"\n"
    )


@pytest.fixture
def writer_of(tmp_path: Path) -> Any:
    """Return a function that makes the writer of a rank, closed at the end."""
    made: list[PartWriter] = []

    def make(rank: int, **more: Any) -> PartWriter:
        made.append(PartWriter(tmp_path, header=header(rank), **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def pieces(content: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    at = 0
    while at < len(content):
        ends = content.index(b"\n", at)
        head = json.loads(content[at:ends])
        at = ends + 1 + head["bytes"]
        found[head["file"]] = found.get(head["file"], b"") + content[ends + 1 : at]
    return found


def shipping(folder: Path, s3: Any, **more: Any) -> Shipper:
    shipper = Shipper(folder=folder, s3=s3, attempt=1, host="algo-1", **more)
    shipper._began_at = shipper._sent_at = shipper.clock()
    return shipper


def test_one_object_holds_what_all_ranks_of_the_host_wrote(
    tmp_path: Path, s3: S3Prefix, writer_of: Any
) -> None:
    ticks = Ticks()
    shipper = shipping(tmp_path, s3, clock=ticks)
    writers = [writer_of(rank) for rank in (0, 1)]
    for rank, writer in enumerate(writers):
        writer.write(line(rank + 1))

    ticks.now = 1.0
    shipper.poll()
    writers[1].write(line(3))
    ticks.now = 2.0
    shipper.poll()

    assert list(s3.sizes()) == ["0001.algo-1/00000001.bundle", "0001.algo-1/00000002.bundle"]
    first = pieces(s3.read("0001.algo-1/00000001.bundle"))
    assert [each.splitlines(keepends=True)[1] for each in first.values()] == [line(1), line(2)]
    assert pieces(s3.read("0001.algo-1/00000002.bundle")) == {
        "rank-00001.attempt-0001.part-0001.jsonl": line(3)
    }
    assert newest_attempt_in(s3) == 1


def test_the_thread_puts_the_rest_once_all_ranks_have_closed(tmp_path: Path, s3: S3Prefix) -> None:
    shipper = Shipper(folder=tmp_path, s3=s3, attempt=1, host="algo-1", num_ranks=2)
    writers = [PartWriter(tmp_path, header=header(rank), marks_end=True) for rank in (0, 1)]
    shipper.start()
    for writer in writers:
        writer.write(line(1))
        writer.close()

    shipper.close()

    content = b"".join(s3.read(name) for name in s3.sizes())
    assert content.count(line(1)) == 2


@pytest.mark.torch
def test_a_training_puts_what_its_ranks_observe_and_deletes_nothing_that_s3_lacks(
    make_job: Any, engine: RunningEngine, s3: S3Prefix, tmp_path: Path
) -> None:
    variables = {
        "AWS_ENDPOINT_URL": engine.endpoint_url,
        "AWS_REGION": engine.region,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "TRAINYARD_STATISTICS_S3_URI": s3.uri,
        "TRAINYARD_CHECKPOINT_S3_URI": f"s3://{engine.bucket}/{tmp_path.name}/nothing-arrives",
    }
    environ = dict.fromkeys((0, 1), variables)
    job = make_job()

    settings = {"world_size": 2, "checkpoint_interval": 1, "environ": environ}
    assert job.run(max_steps=4, **settings) == [0, 0], job.log()
    assert job.run(max_steps=6, **settings) == [0, 0], job.log()

    assert job.checkpoints() == [f"step-{step:08d}" for step in range(1, 7)]
    assert s3.folders() == ["0001.algo-1", "0002.algo-1"]
    found = [pieces(s3.read(name)) for name in sorted(s3.sizes())]
    for rank in (0, 1):
        own = [
            json.loads(each)
            for files in found
            for name, content in files.items()
            if name.startswith(f"rank-0000{rank}.")
            for each in content.splitlines()
        ]
        assert [each["step"] for each in own if each.get("kind") == "step"] == list(range(1, 7))
    assert not (job.base_dir / "checkpoints" / "statistics").exists()
    assert not (job.base_dir / "output" / "data" / "statistics").exists()


class Recorder:
    """S3 that notes when it was put to, and fails on demand."""

    def __init__(self) -> None:
        self.put: list[tuple[str, bytes]] = []
        self.fails = False

    def write(self, name: str, content: bytes) -> None:
        self.put.append((name, content))
        if self.fails:
            raise S3UnavailableError("no way")


def test_a_number_that_is_not_finite_is_put_at_once_and_more_of_them_ever_later(
    tmp_path: Path, writer_of: Any
) -> None:
    ticks, s3 = Ticks(), Recorder()
    shipper = shipping(tmp_path, s3, clock=ticks)
    writer = writer_of(0)
    ticks.now = 5 * 3600.0
    writer.write(line(1))
    shipper.poll()  # the pause was over
    num_before, begins = len(s3.put), ticks.now

    for step in range(2, 402):  # every second, bad from the beginning
        ticks.now += 1.0
        writer.write(line(step, loss="nan"))
        shipper.poll()
        if step == 2:
            assert len(s3.put) == num_before + 1

    assert len(s3.put) - num_before < 2 * 7 + (ticks.now - begins) / 60 + 2


def test_what_s3_may_have_taken_is_put_again_unchanged(
    tmp_path: Path, writer_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ticks, s3 = Ticks(), Recorder()
    shipper = shipping(tmp_path, s3, clock=ticks)
    writer = writer_of(0)
    s3.fails = True
    with caplog.at_level(logging.WARNING):
        for step in range(40):
            writer.write(line(step))
            ticks.now += 1.0
            shipper.poll()
    s3.fails = False
    for _ in range(60):
        ticks.now += 1.0
        shipper.poll()

    names = [name.rpartition("/")[2] for name, _ in s3.put]
    faults = 4  # after 1, 6, 16 and 36 s
    assert names == ["00000001.bundle"] * (faults + 1) + ["00000002.bundle"]
    assert len({content for name, content in s3.put[: faults + 1]}) == 1
    assert b"".join(content for _, content in s3.put[faults:]).count(b'"kind"') == 40
    assert len([each for each in caplog.messages if "DO NOT REACH S3" in each]) == 1


def test_the_pause_after_faults_is_bounded_and_nothing_is_kept_in_memory(
    tmp_path: Path, writer_of: Any
) -> None:
    ticks, s3 = Ticks(), Recorder()
    shipper = shipping(tmp_path, s3, clock=ticks)
    writer, s3.fails = writer_of(0), True
    for step in range(3600):
        ticks.now += 1.0
        writer.write(line(step))
        shipper.poll()

    assert 3600 / LONGEST_REST_S < len(s3.put) < 3600 / LONGEST_REST_S + 8
    assert sum(map(len, shipper._pending)) < len(line(1)) * 2 * LONGEST_REST_S + READ_BYTES


def test_the_end_puts_all_that_was_written_after_a_fault_of_s3(
    tmp_path: Path, writer_of: Any
) -> None:
    ticks, s3 = Ticks(), Recorder()
    shipper = shipping(tmp_path, s3, clock=ticks)
    writer, s3.fails = writer_of(0), True
    writer.write(line(1))
    ticks.now = 1.0
    shipper.poll()
    num_failed, s3.fails = len(s3.put), False
    for step in range(2, 3 * READ_BYTES // 1000):
        writer.write(line(step, text="x" * 1000))
    writer.write(b'{"mark":"done"}\n')
    shipper.poll()
    assert len(s3.put) == num_failed, "S3 rests"

    shipper.poll(is_last=True)

    (path,) = tmp_path.glob("*.jsonl")
    put = b"".join(content for _, content in s3.put[num_failed:])
    assert path.stat().st_size > 3 * READ_BYTES
    assert pieces(put) == {path.name: path.read_bytes()}


def test_the_end_does_not_repeat_a_write_that_failed(tmp_path: Path, writer_of: Any) -> None:
    s3 = Recorder()
    shipper = shipping(tmp_path, s3, clock=Ticks())
    writer, s3.fails = writer_of(0), True
    for step in range(3 * READ_BYTES // 1000):
        writer.write(line(step, text="x" * 1000))

    shipper.poll(is_last=True)

    assert len(s3.put) == 1


def test_an_attempt_that_began_without_s3_is_put_when_s3_answers(
    tmp_path: Path, s3: S3Prefix, engine: RunningEngine, writer_of: Any
) -> None:
    ticks = Ticks()
    shipper = shipping(tmp_path, s3, clock=ticks, knows_attempt=False)
    writer_of(0).write(line(1))
    outage = {"what": "s3_error", "operation": "ListObjectsV2", "key_prefix": tmp_path.name}
    with faults(engine.endpoint_url, outage | {"count": None, "status": 503}):
        ticks.now = 1.0
        shipper.poll()
        assert s3_keys(engine, tmp_path.name) == []
    ticks.now += FIRST_REST_S / 2
    shipper.poll()
    assert list(s3.sizes()) == []

    ticks.now += FIRST_REST_S
    shipper.poll()

    assert list(s3.sizes()) == ["0001.algo-1/00000001.bundle"]


def test_an_attempt_of_a_number_that_s3_has_is_not_put_over_it(
    tmp_path: Path, s3: S3Prefix, writer_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    s3.write("0001.algo-1/00000001.bundle", b"of the start before")
    ticks = Ticks()
    shipper = shipping(tmp_path, s3, clock=ticks, knows_attempt=False)
    writer_of(0).write(line(1))

    for _ in range(3):
        ticks.now += 600.0
        shipper.poll(is_last=True)

    assert s3.read("0001.algo-1/00000001.bundle") == b"of the start before"
    assert len(s3.sizes()) == 1
    assert caplog.text.count("attempt 1 already exists") == 1


@pytest.mark.slow
@pytest.mark.torch
def test_a_training_whose_s3_failed_at_its_start_puts_its_statistics_later(
    make_job: Any, engine: RunningEngine, s3: S3Prefix, tmp_path: Path
) -> None:
    variables = {
        "AWS_ENDPOINT_URL": engine.endpoint_url,
        "AWS_REGION": engine.region,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "TRAINYARD_STATISTICS_S3_URI": s3.uri,
    }
    job = make_job()
    outage = {"what": "s3_error", "operation": "ListObjectsV2", "key_prefix": tmp_path.name}

    fault = outage | {"count": 3, "status": 503}
    with faults(engine.endpoint_url, fault):  # each of boto's attempts at the start
        assert job.run(max_steps=4, environ={0: variables}) == [0], job.log()

    assert "STATISTICS DO NOT REACH S3" in job.log()
    content = b"".join(s3.read(name) for name in s3.sizes())
    assert content.count(b'"kind":"step"') == 4
    assert list((job.base_dir / "output" / "data" / "statistics").glob("*.jsonl"))


def test_shipped_parts_leave_the_disk(tmp_path: Path, writer_of: Any) -> None:
    ticks, s3 = Ticks(), Recorder()
    shipper = shipping(tmp_path, s3, clock=ticks)
    writer = writer_of(0, clock=ticks)
    for step in range(60):
        ticks.now += 300.0  # a part each
        writer.write(line(step))
        shipper.poll()

    assert len(list(tmp_path.glob("*.jsonl"))) == PARTS_KEPT + 1
    assert b"".join(content for _, content in s3.put).count(b'"kind"') == 60


def num_objects(days: float) -> int:
    """Return how many objects one host puts: lines come all the time."""
    at, count = 0.0, 0
    while at < days * DAY_S:
        at += pause_s(at)
        count += 1
    return count


def test_a_week_of_eight_hosts_costs_what_the_documentation_says() -> None:
    objects = HOSTS * num_objects(DAYS)
    looks = DAYS * DAY_S / 15  # WatchPlan's interval; a look lists files, streams, and each stream
    lists = int(looks * (HOSTS + 2))
    usd = (objects + lists) * 5e-6 + objects * 4e-7  # S3 Standard, us-east-1: PUT, LIST and GET

    text = DOCS.read_text(encoding="utf-8")
    for told in (f"{objects:,} PUTs and {objects:,} GETs", f"{lists:,} LISTs", f"{usd:.2f} USD"):
        assert told in text, told
    assert (
        objects < 184_320 / 2
    )  # less than half of one day, before, of what was restored to every host


@pytest.mark.parametrize("age_s", [0.0, 30.0, 60.0, 61.0, 600.0, 3599.0, 3600.0, 7 * DAY_S])
def test_the_reader_expects_the_writers_pause(age_s: float) -> None:
    assert upload_pause_s(age_s) == pause_s(age_s)
