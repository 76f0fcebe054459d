"""Wall time of a run by cause."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.runs.goodput import Cause, Goodput, TrainingSpan, goodput


def task(task_id: str, start: float, end: float | None) -> dict[str, Any]:
    return {"task_id": task_id, "start": start, "end": end}


def job(task_id: str, *statuses: tuple[str, float, float | None], **values: Any) -> dict[str, Any]:
    transitions = [{"status": name, "start": a, "end": b} for name, a, b in statuses]
    return {
        "task_id": task_id,
        "name": task_id,
        "ended_at": None,
        "transitions": transitions,
        **values,
    }


def known(found: Goodput) -> dict[str, float]:
    return {cause: round(seconds, 6) for cause, seconds in found.to_dict()["seconds"].items()}


TRAINING = job(
    "train",
    ("Starting", 30, 50),
    ("Downloading", 50, 60),
    ("Training", 60, 160),
    ("Interrupted", 160, 200),
    ("Downloading", 200, 205),
    ("Training", 205, 300),
    ("Uploading", 300, 310),
    ended_at=310,
)
STARTS = (
    TrainingSpan(job="train", at=65, lost_from=140, lost_until=160),
    TrainingSpan(job="train", at=215),
)
TASKS = (
    task("preflight", 0, 10),
    task("shard", 12, 28),
    task("train", 29, 312),
    task("watch_rules", 29, 313),
    task("evaluate", 315, 345),
)


def test_each_delay_of_a_run_is_at_its_cause() -> None:
    evaluation = job("evaluate", created_at=316, started_at=320, ended_at=340)
    found = goodput(
        begun_at=0, ended_at=350, tasks=TASKS, jobs=(TRAINING, evaluation), starts=STARTS
    )
    assert known(found) == {
        "stepping": (140 - 65) + (300 - 215),
        "steps redone later": 20,
        "waiting for capacity": 20 + 40 + 4,
        "starting": 10 + 5 + 5 + 10,
        "uploading": 10,
        "preparing data": 16,
        "evaluating": 1 + 20 + 5,
        "in Airflow": 350 - 160 - 20 - 64 - 30 - 10 - 16 - 26,
    }
    assert found.share == pytest.approx(160 / 350)


@pytest.mark.parametrize(
    ("answered_at", "end", "waited_s"),
    [(150, 160, 40), (None, 130, 20), (None, None, 90)],
    ids=["answered", "cleared while it waits", "still waiting"],
)
def test_a_question_waits_for_a_person_until_its_answer(
    answered_at: float | None, end: float | None, waited_s: float
) -> None:
    register = {**task("register", 100, end), "asked_at": 110, "answered_at": answered_at}
    found = goodput(begun_at=0, ended_at=200, tasks=[register], jobs=(), starts=())
    assert known(found) == {"waiting for a person": waited_s, "in Airflow": 200 - waited_s}


def test_a_job_that_runs_while_a_person_is_asked_counts() -> None:
    asking = {**task("register", 30, 400), "asked_at": 30, "answered_at": 400}
    found = goodput(begun_at=0, ended_at=400, tasks=[asking], jobs=(TRAINING,), starts=STARTS)
    assert known(found)["waiting for a person"] == 400 - 310


def test_stalls_are_taken_from_the_steps() -> None:
    found = goodput(
        begun_at=0,
        ended_at=350,
        tasks=TASKS,
        jobs=(TRAINING,),
        starts=STARTS,
        stall_seconds=10,
        data_wait_share=0.2,
    )
    assert known(found)["checkpointing"] == 10
    assert known(found)["stalled on data"] == pytest.approx(30)
    assert known(found)["stepping"] == pytest.approx(120)


def test_a_script_without_a_metric_line_steps_while_its_job_trains() -> None:
    found = goodput(begun_at=0, ended_at=310, tasks=(), jobs=(TRAINING,), starts=())
    assert known(found)["stepping"] == 100 + 95


def test_instances_on_which_no_process_came_to_train_were_only_starting() -> None:
    found = goodput(begun_at=0, ended_at=310, tasks=(), jobs=(TRAINING,), starts=STARTS[:1])
    assert known(found)["starting"] == 10 + 5 + 5 + 95


def test_a_run_without_a_task_was_in_airflow() -> None:
    found = goodput(begun_at=5, ended_at=9, tasks=(), jobs=(), starts=())
    assert found.to_dict() == {"wall_seconds": 4, "share": 0.0, "seconds": {"in Airflow": 4}}


def test_a_search_is_searching_all_the_time() -> None:
    search = {"task_id": "tune", "name": "s", "kind": "tuning", "created_at": 5, "ended_at": 90}
    found = goodput(begun_at=0, ended_at=100, tasks=[task("tune", 2, 95)], jobs=[search], starts=())
    assert known(found) == {"searching": 93, "in Airflow": 7}


def test_a_start_that_the_hosts_clock_puts_before_the_status_is_its_start() -> None:
    early = (TrainingSpan(job="train", at=59.9), TrainingSpan(job="train", at=204.9))
    found = goodput(begun_at=0, ended_at=310, tasks=(), jobs=(TRAINING,), starts=early)
    assert known(found)["stepping"] == 100 + 95


def test_processes_that_start_again_on_their_instances_are_starting_meanwhile() -> None:
    training = job("train", ("Training", 0, 100), ended_at=100)
    starts = (
        TrainingSpan(job="train", at=5, lost_from=40, lost_until=50, restarted_from=50),
        TrainingSpan(job="train", at=58),
    )
    found = goodput(begun_at=0, ended_at=100, tasks=(), jobs=(training,), starts=starts)
    assert known(found) == {
        "starting": 5 + 8,
        "stepping": 35 + 42,
        "steps redone later": 10,
    }


MOMENT = st.floats(0, 1000)
STATUS = st.sampled_from(
    ["Starting", "Downloading", "Training", "Interrupted", "Uploading", "Stopping"]
)


@given(
    statuses=st.lists(st.tuples(STATUS, MOMENT, MOMENT), max_size=8),
    tasks=st.lists(
        st.tuples(st.sampled_from(["shard", "train", "evaluate"]), MOMENT, MOMENT), max_size=4
    ),
    starts=st.lists(st.tuples(MOMENT, MOMENT, MOMENT), max_size=3),
    stall=st.floats(0, 500),
    share=st.floats(0, 1),
    end=st.floats(0, 900),
)
def test_the_causes_add_up_to_the_wall_time(
    statuses: list[tuple[str, float, float]],
    tasks: list[tuple[str, float, float]],
    starts: list[tuple[float, float, float]],
    stall: float,
    share: float,
    end: float,
) -> None:
    found = goodput(
        begun_at=100.0,
        ended_at=100.0 + end,
        tasks=[task(*each) for each in tasks],
        jobs=[job("train", *statuses)],
        starts=[TrainingSpan(job="train", at=a, lost_from=b, lost_until=c) for a, b, c in starts],
        stall_seconds=stall,
        data_wait_share=share,
    )
    assert sum(found.seconds.values()) == pytest.approx(end, abs=1e-6)
    assert all(seconds >= 0 for seconds in found.seconds.values())
    assert list(found.seconds) == list(Cause)
