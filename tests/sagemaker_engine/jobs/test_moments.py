from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.faults.model import LOSS_KINDS, JobState
from sagemaker_engine.faults.reader import read_plan
from sagemaker_engine.faults.schedule import Schedule
from sagemaker_engine.faults.store import FaultStore
from sagemaker_engine.jobs.fault_moments import LOOK_S, Moments

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """A clock that goes by LOOK_S with every question, so that nothing read is too old."""

    now = 0.0

    def __call__(self) -> float:
        self.now += LOOK_S
        return self.now


@pytest.fixture
def fault_store(tmp_path: Path) -> FaultStore:
    return FaultStore(tmp_path)


def moments_of(fault_store: FaultStore, *faults: dict[str, Any], attempt: int = 1) -> Moments:
    if faults:
        fault_store.replace(read_plan(list(faults))[0])
    return Moments(
        fault_store=fault_store,
        job="job",
        subject=f"job/{attempt}",
        attempt=attempt,
        is_spot=True,
        clock=Clock(),
    )


def due(moments: Moments, **known: Any) -> list[str]:
    return [each.id for each in moments.due(**known)]


@pytest.mark.parametrize(
    ("line", "comes"),
    [
        ("trainyard step=4 loss=1.0", False),
        ("step=5", True),
        ("loss=1 step=120", True),
        ("global_step=9", False),
        ("step=", False),
        ("resume step=7 step=2", True),
    ],
)
def test_step_comes_with_the_first_line_at_or_beyond_it(
    fault_store: FaultStore, line: str, comes: bool
) -> None:
    moments = moments_of(fault_store, {"id": "a", "what": "interrupt", "at": {"step": 5}})

    moments.line(line)

    assert due(moments) == (["a"] if comes else [])
    assert due(moments) == []


def test_later_lines_do_not_take_a_step_back(fault_store: FaultStore) -> None:
    moments = moments_of(fault_store, {"id": "a", "what": "hang", "at": {"step": 5}})

    moments.line("step=6")
    moments.line("step=1")

    assert due(moments) == ["a"]


def test_states_come_when_they_are_entered(fault_store: FaultStore) -> None:
    moments = moments_of(
        fault_store,
        {"id": "down", "what": "hang", "at": {"state": "Downloading"}},
        {"id": "train", "what": "hang", "at": {"state": "Training"}},
        {"id": "once", "what": "hang"},
        {"id": "up", "what": "hang", "at": {"state": "Uploading"}},
    )

    came = []
    for state in (JobState.DOWNLOADING, JobState.TRAINING, JobState.UPLOADING):
        moments.enter(state)
        came.append(due(moments))

    assert came == [["down"], ["train", "once"], ["up"]]


def test_checkpointing_comes_while_a_checkpoint_is_written(fault_store: FaultStore) -> None:
    moments = moments_of(fault_store, {"id": "a", "what": "hang", "at": {"state": "Checkpointing"}})
    moments.enter(JobState.TRAINING)

    assert due(moments) == []
    assert due(moments, is_checkpointing=True) == ["a"]


def test_seconds_count_from_the_training_of_the_attempt(fault_store: FaultStore) -> None:
    moments = moments_of(fault_store, {"id": "a", "what": "hang", "at": {"seconds": 10 * LOOK_S}})
    moments.enter(JobState.DOWNLOADING)
    before = [due(moments) for _ in range(20)]
    moments.enter(JobState.TRAINING)

    after = [due(moments) for _ in range(10)]

    assert before == [[]] * 20
    assert after.index(["a"]) > 1


def test_one_loss_of_hosts_comes_at_a_time_and_the_next_waits_for_the_next_attempt(
    fault_store: FaultStore,
) -> None:
    first = moments_of(
        fault_store,
        {"id": "a", "what": "interrupt", "at": {"step": 1}},
        {"id": "b", "what": "interrupt", "at": {"step": 1}},
    )
    first.line("step=1")

    assert due(first) == ["a"]
    second = moments_of(fault_store, attempt=2)
    second.line("step=1")
    assert due(second) == ["b"]


def test_schedule_draws_for_every_attempt(fault_store: FaultStore) -> None:
    fault_store.replace([], Schedule(seed=7, interruptions_per_hour=30))

    awaited = [moments_of(fault_store, attempt=each).awaited[0] for each in (1, 2)]

    assert [each.id for each in awaited] == ["seed-7", "seed-7"]
    assert awaited[0].at != awaited[1].at


def test_a_fault_of_another_kind_is_not_used_up(fault_store: FaultStore) -> None:
    """During downloads and uploads only the loss of hosts can occur; a rank's end waits for the training."""
    lost = {"id": "lost", "what": "interrupt", "at": {"seconds": 0}}
    killed = {"id": "killed", "what": "kill_rank", "at": {"seconds": 0}}
    moments = moments_of(fault_store, killed, lost)
    moments.enter(JobState.TRAINING)

    assert due(moments, kinds=LOSS_KINDS) == ["lost"]
    assert due(moments) == ["killed"]
