"""The platform's own requests of S3 while S3 fails: asked again, whole or not at all."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.channels.listing import list_prefix
from sagemaker_engine.channels.locations import InputDataError, S3Location
from sagemaker_engine.channels.placement import place_files
from sagemaker_engine.channels.retrier import Retrier
from sagemaker_engine.channels.s3_agent import READ_TIMEOUT_S, S3Agent
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.fault import S3Fault

if TYPE_CHECKING:
    from pathlib import Path

    from sagemaker_engine.s3.object_store import ObjectStore

BUCKET = "data-bucket"
CONTENT = os.urandom(3_000_001)
PLACE = S3Location(bucket=BUCKET, key="in/")


@dataclass
class AgentClock:
    """A clock that only waiting moves."""

    now: float = 0.0

    def wait(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Script:
    """Gives the harms of an operation in turn, the last for ever, and counts its requests."""

    operation: str
    harms: list[S3Fault | None]
    requests: list[str] = field(default_factory=list)

    def find(self, operation: str, bucket: str, key: str) -> S3Fault | None:
        assert bucket == BUCKET
        if operation != self.operation:
            return None
        self.requests.append(key)
        return self.harms.pop(0) if len(self.harms) > 1 else self.harms[0]


@pytest.fixture
def clock() -> AgentClock:
    return AgentClock()


def agent(objects: ObjectStore, script: Script, clock: AgentClock, **retrier: object) -> S3Agent:
    patient = Retrier(wait=clock.wait, clock=lambda: clock.now, **retrier)  # type: ignore[arg-type]
    return S3Agent(objects.root, find_fault=script.find, retrier=patient)


def read(store: ObjectStore, key: str) -> bytes:
    with store.open(BUCKET, key) as file:
        return file.read()


SLOW_DOWN = S3Fault(error=S3Error("SlowDown"))
HALF = S3Fault(halves=True)


@pytest.mark.parametrize(
    "harms",
    [[SLOW_DOWN] * 5 + [None], [HALF, HALF, None], [HALF, SLOW_DOWN, HALF, None]],
    ids=["refused", "halved", "both"],
)
def test_an_object_is_read_whole_through_failures(
    objects: ObjectStore, clock: AgentClock, harms: list[S3Fault | None]
) -> None:
    objects.put(BUCKET, "in/a", CONTENT)
    script = Script("GetObject", list(harms))

    assert read(agent(objects, script, clock), "in/a") == CONTENT
    assert len(script.requests) == len(harms)


@pytest.mark.parametrize("link", [True, False], ids=["linked", "copied"])
@pytest.mark.parametrize("size", [0, 1, 2, 1_500_000])
def test_a_half_object_never_reaches_a_channel(
    tmp_path: Path, objects: ObjectStore, clock: AgentClock, size: int, link: bool
) -> None:
    objects.put(BUCKET, "in/a", CONTENT[:size])
    platform = agent(objects, Script("GetObject", [HALF, HALF, None]), clock)

    num_bytes = place_files(list_prefix(PLACE, platform), tmp_path / "to", platform, link=link)

    assert num_bytes == size
    assert (tmp_path / "to" / "a").read_bytes() == CONTENT[:size]


def test_halves_for_ever_end_as_an_error(
    tmp_path: Path, objects: ObjectStore, clock: AgentClock
) -> None:
    objects.put(BUCKET, "in/a", CONTENT)
    platform = agent(objects, Script("GetObject", [HALF]), clock)

    with pytest.raises(InputDataError, match=r"in/a: IncompleteBody \(400\)") as failed:
        place_files(list_prefix(PLACE, platform), tmp_path / "to", platform, link=False)
    assert failed.value.is_service_fault


def test_an_object_that_changes_while_it_is_read_is_no_mixture(
    objects: ObjectStore, clock: AgentClock
) -> None:
    objects.put(BUCKET, "in/a", b"old" * 1000)
    platform = agent(objects, Script("GetObject", [HALF, None]), clock)
    with platform.open(BUCKET, "in/a") as file:
        assert file.read(4) == b"oldo"
        objects.put(BUCKET, "in/a", b"new" * 1000)
        with pytest.raises(S3Error, match="PreconditionFailed"):
            file.read()


def test_patience_waits_longer_and_longer_and_ends(objects: ObjectStore, clock: AgentClock) -> None:
    script = Script("ListObjectsV2", [SLOW_DOWN])

    with pytest.raises(InputDataError, match=r"SlowDown \(503\): Please reduce your request rate"):
        list_prefix(PLACE, agent(objects, script, clock, limit_s=300.0))

    assert 290.0 <= clock.now <= 300.0
    assert len(script.requests) == 34  # 0.5 + 1 + 2 + 4 + 8 s, then one every 10 s


@pytest.mark.parametrize("code", ["AccessDenied", "NoSuchKey"])
def test_a_refusal_is_not_asked_again(objects: ObjectStore, clock: AgentClock, code: str) -> None:
    script = Script("ListObjectsV2", [S3Fault(error=S3Error(code))])

    with pytest.raises(InputDataError, match=code) as refused:
        list_prefix(PLACE, agent(objects, script, clock))

    assert not refused.value.is_service_fault
    assert (len(script.requests), clock.now) == (1, 0.0)


def test_a_stop_ends_the_waiting(objects: ObjectStore, clock: AgentClock) -> None:
    script = Script("ListObjectsV2", [SLOW_DOWN])

    with pytest.raises(InputDataError):
        list_prefix(PLACE, agent(objects, script, clock, must_end=lambda: clock.now > 5.0))

    assert clock.now == pytest.approx(5.0, abs=0.5)


@pytest.mark.parametrize(("stall_s", "waits_s"), [(7.0, 7.0), (90.0, READ_TIMEOUT_S + 0.5)])
def test_a_stall_is_borne_up_to_the_read_timeout(
    objects: ObjectStore, clock: AgentClock, stall_s: float, waits_s: float
) -> None:
    objects.put(BUCKET, "in/a", b"x")
    platform = agent(objects, Script("GetObject", [S3Fault(stall_s=stall_s), None]), clock)

    assert read(platform, "in/a") == b"x"
    assert clock.now == pytest.approx(waits_s)


def test_a_write_is_tried_once(objects: ObjectStore, clock: AgentClock) -> None:
    script = Script("PutObject", [SLOW_DOWN, None])
    platform = agent(objects, script, clock)

    with pytest.raises(S3Error, match="SlowDown"):
        platform.put(BUCKET, "out/a", b"x")
    platform.put(BUCKET, "out/a", b"x")

    assert read(objects, "out/a") == b"x"
    assert clock.now == 0.0
