from __future__ import annotations

import gzip
import json
import os
import re
import select
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.channels.locations import InputDataError
from sagemaker_engine.channels.pipe import (
    POLL_S,
    RECORD_MAGIC,
    PipeFeeder,
    channel_records,
)
from sagemaker_engine.jobs.job import HostPlan
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sagemaker_engine.s3.object_store import ObjectStore

BUCKET = "data-bucket"
HOST = HostPlan(name="algo-1", group="g", instance_type="local")


def channel(uri: str, *, data_type: str = "S3Prefix", **members: Any) -> dict[str, Any]:
    source = {"S3DataType": data_type, "S3Uri": uri, **members.pop("source", {})}
    return {"ChannelName": "train", "DataSource": {"S3DataSource": source}, **members}


@pytest.fixture
def feed(tmp_path: Path, objects: ObjectStore) -> Iterator[Any]:
    feeders: list[PipeFeeder] = []

    def start(values: dict[str, Any]) -> Path:
        units = channel_records(values, objects, host=HOST, hosts=[HOST])
        assert units is not None
        feeder = PipeFeeder(values, units, tmp_path / "data", objects)
        feeders.append(feeder)
        feeder.start()
        return tmp_path / "data"

    yield start
    for feeder in feeders:
        feeder.stop()
        feeder.join(timeout=EVENT_LIMIT_S)
        assert not feeder.is_alive()


def test_every_epoch_streams_all_objects_in_key_order(feed: Any, objects: ObjectStore) -> None:
    objects.put(BUCKET, "in/a", b"first ")
    objects.put(BUCKET, "in/b", b"second")

    folder = feed(channel(f"s3://{BUCKET}/in"))

    assert (folder / "train_0").read_bytes() == b"first second"
    assert (folder / "train_1").read_bytes() == b"first second"


def test_a_reader_that_stops_early_gets_a_whole_next_epoch(feed: Any, objects: ObjectStore) -> None:
    objects.put(BUCKET, "in/a", b"x" * 3_000_000)

    folder = feed(channel(f"s3://{BUCKET}/in"))
    with (folder / "train_0").open("rb") as pipe:
        assert pipe.read(10) == b"x" * 10

    assert len((folder / "train_1").read_bytes()) == 3_000_000


def test_gzip_objects_are_streamed_unpacked(feed: Any, objects: ObjectStore) -> None:
    objects.put(BUCKET, "in/a.gz", gzip.compress(b"text"))

    folder = feed(channel(f"s3://{BUCKET}/in", CompressionType="Gzip"))

    assert (folder / "train_0").read_bytes() == b"text"


def test_record_wrapping_frames_each_object(feed: Any, objects: ObjectStore) -> None:
    objects.put(BUCKET, "in/a", b"12345")

    folder = feed(channel(f"s3://{BUCKET}/in", RecordWrapperType="RecordIO"))

    expected = struct.pack("<II", RECORD_MAGIC, 5) + b"12345\0\0\0"
    assert (folder / "train_0").read_bytes() == expected


def test_a_shuffled_channel_changes_its_order_every_epoch(feed: Any, objects: ObjectStore) -> None:
    for number in range(26):
        objects.put(BUCKET, f"in/{number:02}", bytes([97 + number]))

    folder = feed(channel(f"s3://{BUCKET}/in", ShuffleConfig={"Seed": 1}))
    first, second = (folder / "train_0").read_bytes(), (folder / "train_1").read_bytes()

    assert sorted(first) == sorted(second) == list(b"abcdefghijklmnopqrstuvwxyz")
    assert first != second


@pytest.mark.parametrize(
    ("data", "expected"),
    [(None, "in/b.*NoSuchKey|in/b.*not exist"), (gzip.compress(bytes(999))[:-9], "in/b.*ended")],
    ids=["deleted", "cut-short"],
)
def test_a_reader_never_takes_lost_data_for_the_end(
    tmp_path: Path, objects: ObjectStore, data: bytes | None, expected: str
) -> None:
    objects.put(BUCKET, "in/a", gzip.compress(b"first"))
    objects.put(BUCKET, "in/b", data or b"to be deleted")
    values = channel(f"s3://{BUCKET}/in", CompressionType="Gzip")
    units = channel_records(values, objects, host=HOST, hosts=[HOST])
    assert units is not None
    if data is None:
        objects.delete(BUCKET, "in/b")
    feeder = PipeFeeder(values, units, tmp_path / "data", objects)
    feeder.start()

    with (tmp_path / "data" / "train_0").open("rb") as pipe:
        deadline = time.monotonic() + 5
        while feeder.fault is None and feeder.is_alive() and time.monotonic() < deadline:
            feeder.join(0.01)
        poll = select.poll()
        poll.register(pipe, select.POLLHUP)
        has_ended = bool(poll.poll(0))
        feeder.stop()
        feeder.join(5)

    assert not has_ended
    assert feeder.fault is not None
    assert re.search(expected, str(feeder.fault))


def test_an_augmented_manifest_streams_its_attributes(feed: Any, objects: ObjectStore) -> None:
    objects.put(BUCKET, "img/1", b"<image>")
    line = {"source-ref": f"s3://{BUCKET}/img/1", "label": 7}
    objects.put(BUCKET, "augmented", json.dumps(line).encode() + b"\n")
    values = channel(
        f"s3://{BUCKET}/augmented",
        data_type="AugmentedManifestFile",
        source={"AttributeNames": ["source-ref", "label"]},
    )

    assert (feed(values) / "train_0").read_bytes() == b"<image>7"


def test_an_augmented_manifest_without_the_attribute_is_refused(objects: ObjectStore) -> None:
    objects.put(BUCKET, "augmented", b'{"other": 1}\n')
    values = channel(
        f"s3://{BUCKET}/augmented",
        data_type="AugmentedManifestFile",
        source={"AttributeNames": ["label"]},
    )

    with pytest.raises(InputDataError, match=r"line 1 .*all of AttributeNames \(label\)"):
        channel_records(values, objects, host=HOST, hosts=[HOST])


def test_a_link_in_the_pipes_place_is_never_written_to(
    feed: Any, tmp_path: Path, objects: ObjectStore
) -> None:
    """A program inside can replace the pipe; what its link leads to is this machine's."""
    objects.put(BUCKET, "in/a", b"data")
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"theirs")
    folder = feed(channel(f"s3://{BUCKET}/in"))
    (folder / "train_0").unlink()
    (folder / "train_0").symlink_to(theirs)
    asked = threading.Event()
    for _ in range(10):
        asked.wait(POLL_S)
    assert theirs.read_bytes() == b"theirs"

    (folder / "train_0").unlink()
    os.mkfifo(folder / "train_0")
    assert (folder / "train_0").read_bytes() == b"data"
    assert theirs.read_bytes() == b"theirs"
