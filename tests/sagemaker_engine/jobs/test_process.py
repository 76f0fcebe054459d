from __future__ import annotations

import fcntl
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.jobs import process
from sagemaker_engine.jobs.job import Job
from sagemaker_engine.jobs.process import OrderWatch
from sagemaker_engine.jobs.supervision import Ending
from sagemaker_engine.s3.object_store import ObjectStore
from sagemaker_engine.state.jobs import ResourceKind
from sagemaker_engine.state.settings import EngineSettings
from sagemaker_engine.state.store import JobStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def watch(tmp_path: Path) -> OrderWatch:
    settings = EngineSettings(root=tmp_path, endpoint_url="http://127.0.0.1:1")
    store = JobStore(settings.database_path)
    state = {"TrainingJobStatus": "InProgress"}
    store.create(ResourceKind.TRAINING, "job", arn="arn", request={}, created_at=1.0, state=state)
    job = Job(
        kind=ResourceKind.TRAINING,
        name="job",
        arn="arn",
        request={},
        settings=settings,
        store=store,
        objects=ObjectStore(settings.s3_root),
        folder=tmp_path,
        created_at=1.0,
    )
    return OrderWatch(job=job)


def test_a_stop_request_ends_the_job(watch: OrderWatch) -> None:
    assert watch.order() is None

    watch.job.store.request_stop(ResourceKind.TRAINING, "job", at=time.time())

    assert watch.order() is Ending.STOPPED


def test_a_job_without_an_engine_gives_up_after_a_while(
    watch: OrderWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "ENGINE_ABSENCE_S", -1.0)

    assert watch.order() is Ending.ABANDONED


def test_a_job_goes_on_as_long_as_an_engine_holds_the_lock(
    watch: OrderWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "ENGINE_ABSENCE_S", 0.0)
    monkeypatch.setattr(process, "LOOK_INTERVAL_S", 0.0)
    now = iter([1000.0, 2000.0, 3000.0])
    # Of this module only: other threads of the tests use the real clock.
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: next(now)))
    with watch.job.settings.lock_path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert watch.order() is None
        assert watch.order() is None

    assert watch.order() is Ending.ABANDONED
