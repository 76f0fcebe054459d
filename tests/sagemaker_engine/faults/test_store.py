from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from sagemaker_engine.faults.model import COMPUTE_KINDS, FaultKind
from sagemaker_engine.faults.reader import read_fault
from sagemaker_engine.faults.schedule import Schedule
from sagemaker_engine.faults.store import FaultStore
from tests.limits import EVENT_LIMIT_S

HANG = read_fault({"id": "a", "what": "hang", "job": "train-*", "attempt": 2})


class StoreClock:
    """A clock that stands until it is set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock()


@pytest.fixture
def fault_store(tmp_path: Path, clock: StoreClock) -> FaultStore:
    return FaultStore(tmp_path, clock=clock)


def test_fault_comes_as_often_as_its_count_and_once_a_subject(fault_store: FaultStore) -> None:
    fault = read_fault({"id": "twice", "what": "hang", "count": 2})
    fault_store.replace([fault])

    claims = [
        fault_store.claim(fault, subject=each) for each in ("job/1", "job/1", "job/2", "job/3")
    ]

    assert claims == [True, False, True, False]
    assert fault_store.of_job("job", 1, kinds=COMPUTE_KINDS) == []


def test_fault_without_a_count_comes_to_every_request(fault_store: FaultStore) -> None:
    fault = read_fault({"id": "all", "what": "s3_error", "count": None})
    fault_store.replace([fault])

    assert all(fault_store.claim(fault) for _ in range(5))


def test_fault_is_for_the_jobs_and_the_attempt_that_it_names(fault_store: FaultStore) -> None:
    fault_store.replace([HANG])

    assert fault_store.of_job("train-1", 2, kinds=COMPUTE_KINDS) == [HANG]
    assert fault_store.of_job("train-1", 1, kinds=COMPUTE_KINDS) == []
    assert fault_store.of_job("shard", 2, kinds=COMPUTE_KINDS) == []
    assert fault_store.of_job("train-1", 2, kinds=[FaultKind.SLOW]) == []


def test_store_outlives_who_wrote_it(tmp_path: Path, fault_store: FaultStore) -> None:
    schedule = Schedule(seed=7, interruptions_per_hour=30)
    fault_store.replace([HANG], schedule)
    fault_store.claim(HANG, subject="job/2")

    again = FaultStore(tmp_path)

    assert again.entries() == fault_store.entries()
    assert again.entries()[0].fired_at == (1000.0,)
    assert again.schedule() == schedule


def test_putting_the_same_again_keeps_when_it_came(
    fault_store: FaultStore, clock: StoreClock
) -> None:
    other = read_fault({"id": "b", "what": "slow"})
    fault_store.replace([HANG, other])
    fault_store.claim(HANG, subject="job/2")
    fault_store.claim(other, subject="job/2")
    clock.now = 2000.0

    changed = read_fault({"id": "b", "what": "slow", "factor": 0.5})
    fault_store.replace([changed, HANG])

    entries = {each.fault.id: each for each in fault_store.entries()}
    assert list(entries) == ["b", "a"]
    assert (entries["a"].put_at, entries["a"].fired_at) == (1000.0, (1000.0,))
    assert (entries["b"].put_at, entries["b"].fired_at) == (2000.0, ())


def test_request_faults_hold_from_their_second_for_their_time(
    fault_store: FaultStore, clock: StoreClock
) -> None:
    fault = read_fault({"id": "s", "what": "s3_error", "at": {"seconds": 5}, "duration_s": 10})
    fault_store.replace([fault])

    seen = []
    for now in (1004.9, 1005.0, 1014.9, 1015.0):
        clock.now = now
        seen.append(fault_store.open_for_requests([FaultKind.S3_ERROR]) == [fault])

    assert seen == [False, True, True, False]


def test_clear_forgets_everything(fault_store: FaultStore) -> None:
    fault_store.replace([HANG], Schedule(seed=1, interruptions_per_hour=1))
    fault_store.claim(HANG, subject="job/2")

    fault_store.clear()

    assert (fault_store.entries(), fault_store.schedule(), fault_store.scheduled()) == (
        [],
        None,
        [],
    )
    fault_store.replace([HANG])
    assert fault_store.entries()[0].fired_at == ()


def claim_many(root: str, results: Any) -> None:
    fault_store = FaultStore(Path(root))
    fault = read_fault({"id": "few", "what": "s3_error", "count": 7})
    results.put(sum(fault_store.claim(fault) for _ in range(20)))


def test_processes_share_the_count(tmp_path: Path) -> None:
    FaultStore(tmp_path).replace([read_fault({"id": "few", "what": "s3_error", "count": 7})])
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [
        context.Process(target=claim_many, args=(str(tmp_path), results)) for _ in range(3)
    ]
    for each in processes:
        each.start()

    claimed = [results.get(timeout=EVENT_LIMIT_S) for _ in processes]

    for each in processes:
        each.join()
    assert sum(claimed) == 7
