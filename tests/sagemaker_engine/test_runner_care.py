from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.jobs import launching, runners as runner_care
from sagemaker_engine.jobs.runners import RunnerCare
from sagemaker_engine.sandbox.processes import start_ticks_of
from sagemaker_engine.state.jobs import ResourceKind
from sagemaker_engine.state.settings import EngineSettings
from sagemaker_engine.state.store import JobStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRAINING = ResourceKind.TRAINING


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    """A store with one running job that no runner has taken up."""
    store = JobStore(tmp_path / "engine.sqlite")
    store.create(
        TRAINING,
        "job",
        arn="arn",
        request={},
        created_at=1.0,
        state={
            "TrainingJobStatus": "InProgress",
            "SecondaryStatus": "Starting",
            "SecondaryStatusTransitions": [{"Status": "Starting", "StartTime": 1.0}],
        },
    )
    yield store
    store.close()


@pytest.mark.parametrize(("limit_s", "status"), [(60.0, "InProgress"), (-1.0, "Failed")])
def test_job_whose_runner_never_came_up_fails_after_a_while(
    store: JobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_s: float, status: str
) -> None:
    monkeypatch.setattr(runner_care, "START_LIMIT_S", limit_s)
    settings = EngineSettings(root=tmp_path, endpoint_url="http://127.0.0.1:1")
    RunnerCare(store).look_after(store.list(TRAINING), settings)
    job = store.get(TRAINING, "job")
    assert job.status == status
    if status == "Failed":
        assert "runner.log" in job.state["FailureReason"]


def test_job_that_a_late_runner_took_up_meanwhile_goes_on(
    store: JobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_care, "START_LIMIT_S", -1.0)
    settings = EngineSettings(root=tmp_path, endpoint_url="http://127.0.0.1:1")
    seen = store.list(TRAINING)
    store.set_runner(TRAINING, "job", pid=os.getpid(), start_ticks=start_ticks_of(os.getpid()))

    RunnerCare(store).look_after(seen, settings)

    assert store.get(TRAINING, "job").status == "InProgress"
    assert "FailureReason" not in store.get(TRAINING, "job").state


def test_new_job_that_is_about_to_be_launched_is_not_failed_by_an_old_engine(
    store: JobStore, tmp_path: Path
) -> None:
    settings = EngineSettings(root=tmp_path, endpoint_url="http://127.0.0.1:1")
    care = RunnerCare(store)
    care._began_at -= 1000
    new = replace(store.get(TRAINING, "job"), created_at=time.time())

    care.look_after([new], settings)

    assert store.get(TRAINING, "job").status == "InProgress"


def test_runners_are_collected_by_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Create call collects the runners that ended: two at once must not both take the same one out."""
    pids = [os.posix_spawn("/bin/true", ["true"], {}) for _ in range(100)]
    for pid in pids:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(launching, "_started", type(launching._started)(pids))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: launching.reap(), range(16)))
    finally:
        sys.setswitchinterval(interval)
    assert not launching._started
