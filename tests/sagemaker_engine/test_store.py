from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.state.jobs import JobNameTakenError, JobQuery, ResourceKind, UnknownJobError
from sagemaker_engine.state.store import JobStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRAINING = ResourceKind.TRAINING
INCREMENTS = 50
COUNT_UP = """
import sys
from pathlib import Path
from sagemaker_engine.state.jobs import ResourceKind
from sagemaker_engine.state.store import JobStore
store = JobStore(Path(sys.argv[1]))
def change(state): state["n"] = state.get("n", 0) + 1
for _ in range(int(sys.argv[2])):
    store.update_state(ResourceKind.TRAINING, "job", change)
store.close()
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    """A store whose clock stands at 1000."""
    store = JobStore(tmp_path / "engine.sqlite", clock=lambda: 1000.0)
    yield store
    store.close()


def add(store: JobStore, name: str, *, at: float = 1.0, status: str = "InProgress") -> None:
    store.create(
        TRAINING,
        name,
        arn=f"arn:{name}",
        request={"Some": ["request"]},
        tags={"team": "rail"},
        created_at=at,
        state={"TrainingJobStatus": status},
    )


def names(store: JobStore, **query: Any) -> list[str]:
    return [job.name for job in store.list(TRAINING, JobQuery(**query))]


def test_job_comes_back_as_it_was_stored(store: JobStore) -> None:
    add(store, "job")
    job = store.get(TRAINING, "job")
    assert (job.arn, job.request, job.tags) == (
        "arn:job",
        {"Some": ["request"]},
        {"team": "rail"},
    )
    assert (job.created_at, job.modified_at, job.stop_requested_at) == (1.0, 1.0, None)


def test_name_is_taken_once_per_kind(store: JobStore) -> None:
    add(store, "job")
    with pytest.raises(JobNameTakenError):
        add(store, "job")
    store.create(
        ResourceKind.PROCESSING,
        "job",
        arn="arn:processing",
        request={},
        created_at=1.0,
        state={"ProcessingJobStatus": "InProgress"},
    )


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.get(TRAINING, "nobody"),
        lambda store: store.delete(TRAINING, "nobody"),
        lambda store: store.request_stop(TRAINING, "nobody", at=1.0),
        lambda store: store.set_runner(TRAINING, "nobody", pid=1, start_ticks=1),
        lambda store: store.update_state(TRAINING, "nobody", lambda _state: None),
    ],
    ids=["get", "delete", "request-stop", "set-runner", "update-state"],
)
def test_unknown_job_is_an_error(store: JobStore, use: Any) -> None:
    with pytest.raises(UnknownJobError):
        use(store)


def test_change_that_raises_changes_nothing(store: JobStore) -> None:
    add(store, "job")

    def change(state: dict[str, Any]) -> None:
        state["TrainingJobStatus"] = "Failed"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.update_state(TRAINING, "job", change)
    assert store.get(TRAINING, "job").status == "InProgress"


def test_modified_time_never_runs_back(tmp_path: Path) -> None:
    times = iter([50.0, 40.0])
    store = JobStore(tmp_path / "engine.sqlite", clock=lambda: next(times))
    add(store, "job")
    assert store.update_state(TRAINING, "job", lambda state: state.update(n=1)).modified_at == 50.0
    assert store.update_state(TRAINING, "job", lambda state: state.update(n=2)).modified_at == 50.0
    store.close()


def test_a_change_that_changes_nothing_is_no_modification(store: JobStore) -> None:
    add(store, "job")
    before = store.get(TRAINING, "job")

    def same(state: dict[str, Any]) -> None:
        state["TrainingJobStatus"] = "InProgress"

    assert store.update_state(TRAINING, "job", same) == before


def test_first_stop_request_counts(store: JobStore) -> None:
    add(store, "job")
    store.request_stop(TRAINING, "job", at=5.0)
    store.request_stop(TRAINING, "job", at=9.0)
    assert store.get(TRAINING, "job").stop_requested_at == 5.0


def test_deleted_job_leaves_no_tags_to_the_next_of_its_name(store: JobStore) -> None:
    add(store, "job")
    store.delete(TRAINING, "job")
    store.create(
        TRAINING,
        "job",
        arn="arn:job",
        request={},
        created_at=2.0,
        state={"TrainingJobStatus": "InProgress"},
    )
    assert store.get(TRAINING, "job").tags == {}


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
@pytest.mark.parametrize("order_by", ["name", "created_at", "status"])
def test_pages_hold_every_job_once(store: JobStore, order_by: str, descending: bool) -> None:
    for index in range(7):
        status = "Failed" if index % 2 else "Completed"
        add(store, f"job-{index}", at=float(index // 3), status=status)
    query = {"order_by": order_by, "descending": descending}
    seen: list[str] = []
    after = None
    while page := store.list(TRAINING, JobQuery(**query, limit=2, after=after)):
        seen += [job.name for job in page]
        after = (getattr(page[-1], order_by), page[-1].name)
    assert seen == names(store, **query)
    assert sorted(seen) == [f"job-{index}" for index in range(7)]


def test_query_rejects_a_column_it_cannot_sort_by() -> None:
    with pytest.raises(ValueError, match="name, created_at, status"):
        JobQuery(order_by="arn; DROP TABLE jobs")


def test_filters_narrow_the_list(store: JobStore) -> None:
    add(store, "apple", at=1.0, status="Completed")
    add(store, "Pineapple", at=2.0, status="Failed")
    add(store, "plum", at=3.0, status="Completed")
    assert names(store, name_contains="APPLE") == ["apple", "Pineapple"]
    assert names(store, statuses=frozenset({"Completed"})) == ["apple", "plum"]
    assert names(store, created_after=1.0) == ["Pineapple", "plum"]
    assert names(store, created_before=2.0) == ["apple"]


def test_changed_since_tells_what_was_written_even_after_a_deletion(store: JobStore) -> None:
    add(store, "old")
    add(store, "gone")
    revision = store.get(TRAINING, "gone").revision
    store.delete(TRAINING, "gone")
    store.update_state(TRAINING, "old", lambda state: state.update(n=1))
    assert [job.name for job in store.changed_since(revision)] == ["old"]


def test_processes_do_not_lose_each_others_changes(store: JobStore) -> None:
    add(store, "job")
    command = [sys.executable, "-c", COUNT_UP, str(store.database.path), str(INCREMENTS)]
    counters = [subprocess.Popen(command) for _ in range(2)]
    assert [counter.wait(60) for counter in counters] == [0, 0]
    assert store.get(TRAINING, "job").state["n"] == 2 * INCREMENTS


def test_state_is_plain_json(store: JobStore) -> None:
    add(store, "job")
    with store.database.read() as db:
        text = db.execute("SELECT state FROM jobs").fetchone()["state"]
    assert json.loads(text) == {"TrainingJobStatus": "InProgress"}


def test_change_whose_condition_does_not_hold_any_more_writes_nothing(store: JobStore) -> None:
    add(store, "job")
    before = store.get(TRAINING, "job")

    after = store.update_state(
        TRAINING, "job", lambda state: state.update(n=1), when=lambda job: job.runner_pid == 7
    )

    assert after == before
