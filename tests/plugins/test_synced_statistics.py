"""What the hosts of a training's jobs put to S3, read as it comes: only what is new."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from sagemaker_engine.testing import faults
from trainyard.rules.live import LiveFeed
from trainyard.rules.records import Start, StepRecord
from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard_airflow.triggers import synced_statistics
from trainyard_airflow.triggers.answers import FAULTS
from trainyard_airflow.triggers.synced_statistics import SyncedStatistics

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine


class Bucket:
    """A prefix of statistics in the engine's S3, and every request that reading it took."""

    def __init__(self, engine: RunningEngine, s3: Any, prefix: str) -> None:
        self.engine, self.s3, self.prefix = engine, s3, prefix
        self.asked: list[str] = []
        self.earlier: list[Any] = []

    def put(self, stream: str, number: int, rank: int, *lines: dict[str, Any]) -> None:
        content = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
        attempt = int(stream.partition(".")[0])
        file = f"rank-{rank:05d}.attempt-{attempt:04d}.part-0001.jsonl"
        head = json.dumps({"file": file, "bytes": len(content)}).encode()
        key = f"{self.prefix}{stream}/{number:08d}.bundle"
        self.s3.put_object(Bucket=self.engine.bucket, Key=key, Body=head + b"\n" + content)

    def read(self, statistics: SyncedStatistics, feed: LiveFeed, *, final: bool = False) -> Any:
        return asyncio.run(self._read(statistics, feed, final=final))

    async def _read(self, statistics: SyncedStatistics, feed: LiveFeed, *, final: bool) -> Any:
        session = get_session()
        client = session.create_client(
            "s3",
            endpoint_url=self.engine.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106
            config=AioConfig(s3={"addressing_style": "path"}),
        )
        async with client as s3:
            s3.meta.events.register("before-call.s3", self._note)
            sizes = await statistics.look(s3)
            for piece in feed.wanted(sizes, is_final=final):
                feed.take(piece, await statistics.read(s3, piece))
            self.earlier = feed.earlier_records()
            return feed.records()

    def _note(self, model: Any, **_: Any) -> None:
        self.asked.append(model.name)


@pytest.fixture
def bucket(engine: RunningEngine, s3: Any, tmp_path: Any) -> Bucket:
    return Bucket(engine, s3, f"{tmp_path.name}/train-statistics/")


def of_job(bucket: Bucket) -> SyncedStatistics:
    described = {
        "TrainingJobName": "train-1",
        "TrainingJobStatus": "InProgress",
        "Environment": {
            "TRAINYARD_STATISTICS_S3_URI": f"s3://{bucket.engine.bucket}/{bucket.prefix}"
        },
    }
    return SyncedStatistics.of(JobSnapshot.from_describe(described))


def header(rank: int, attempt: int = 1) -> dict[str, Any]:
    told = {"format": "trainyard-statistics", "version": 1, "rank": rank, "world_size": 2}
    return {**told, "attempt": attempt, "resumed_at": 0, "time": time.time(), "tensors": {}}


def step(number: int) -> dict[str, Any]:
    return {"kind": "step", "step": number, "loss": 1.0, "time": time.time()}


def steps(records: Any) -> list[tuple[int, int]]:
    return [(each.rank, each.step) for each in records if isinstance(each, StepRecord)]


def test_each_look_lists_and_reads_only_what_is_new(bucket: Bucket) -> None:
    statistics, feed = of_job(bucket), LiveFeed()
    bucket.put("0001.algo-1", 1, 0, header(0), step(1))
    bucket.put("0001.algo-2", 1, 1, header(1), step(1))
    assert sorted(steps(bucket.read(statistics, feed))) == [(0, 1), (1, 1)]

    bucket.put("0001.algo-1", 2, 0, step(2))
    bucket.asked.clear()
    assert steps(bucket.read(statistics, feed)) == [(0, 2)]

    assert bucket.asked.count("GetObject") == 1
    assert bucket.asked.count("ListObjectsV2") == 3  # the streams, and each of them


def test_a_later_attempt_goes_on_and_the_earlier_is_not_listed_any_more(bucket: Bucket) -> None:
    statistics, feed = of_job(bucket), LiveFeed()
    bucket.put("0001.algo-1", 1, 0, header(0), step(1))
    bucket.read(statistics, feed)
    bucket.put("0002.algo-1", 1, 0, header(0, 2), step(2))

    records = bucket.read(statistics, feed)
    bucket.asked.clear()
    bucket.read(statistics, feed)

    assert [each.attempt for each in records if isinstance(each, Start)] == [2]
    assert bucket.asked.count("ListObjectsV2") == 2


def test_half_an_object_is_a_fault_of_the_service_and_is_read_again(bucket: Bucket) -> None:
    statistics, feed = of_job(bucket), LiveFeed()
    bucket.put("0001.algo-1", 1, 0, header(0), step(1))
    half = {"what": "s3_truncate", "key_prefix": bucket.prefix}
    with faults(bucket.engine.endpoint_url, half), pytest.raises(FAULTS):
        bucket.read(statistics, feed)

    assert steps(bucket.read(statistics, feed)) == [(0, 1)]


def test_an_earlier_jobs_objects_are_history(bucket: Bucket) -> None:
    bucket.put("0001.algo-1", 1, 0, header(0), step(1))
    statistics, feed = of_job(bucket), LiveFeed(since=time.time() + 3600)

    assert bucket.read(statistics, feed) == []
    assert steps(bucket.earlier) == [(0, 1)]


def test_a_long_job_is_read_in_bounded_pieces(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synced_statistics, "MOST_BYTES", 1)
    statistics, feed = of_job(bucket), LiveFeed()
    bucket.put("0001.algo-1", 1, 0, header(0), step(1))
    bucket.put("0001.algo-1", 2, 0, step(2))

    assert steps(bucket.read(statistics, feed)) == [(0, 1)]
    assert statistics.is_behind
    assert steps(bucket.read(statistics, feed)) == [(0, 2)]
    assert not statistics.is_behind
