"""Curve, progress and checkpoints of a running training, from the lines of its log."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from trainyard.runs.continuity.log_lines import LogLine
from trainyard.runs.live import training_events
from trainyard.runs.live.training_events import TrainingEvents


def line(text: str, *, at: float = 0.0, job: str = "job") -> LogLine:
    return LogLine(job=job, stream=f"{job}/algo-1-1", time_ms=round(at * 1000), text=text)


def read(*texts: str) -> TrainingEvents:
    events = TrainingEvents()
    for at, text in enumerate(texts):
        events.read(line(text, at=at))
    return events


def test_a_step_line_gives_its_metrics_and_the_progress() -> None:
    events = read(
        "trainyard start step=0 world_size=2 max_steps=400",
        "trainyard step=10 epoch=0 loss=2.5 learning_rate=3e-04 eta_seconds=42.0 max_steps=400 "
        "samples=0:16 digest=9f86 accuracy=0.25",
    )
    _, rows = events.rows()
    assert rows == [[0, 10, 1, 1.0, {"loss": 2.5, "learning_rate": 0.0003, "accuracy": 0.25}]]
    assert (events.last_step, events.max_steps, events.eta_s) == (10, 400, 42.0)


def test_a_value_that_json_cannot_hold_is_none() -> None:
    _, rows = read("trainyard step=1 loss=nan gradient_norm=inf").rows()
    assert json.loads(json.dumps(rows, allow_nan=False))[0][4] == {
        "loss": None,
        "gradient_norm": None,
    }


def test_each_start_of_the_processes_is_an_attempt() -> None:
    events = read(
        "trainyard start step=0 max_steps=9",
        "trainyard step=4 loss=2.0",
        "trainyard start step=3 max_steps=9",
        "trainyard step=4 loss=1.9",
    )
    assert [(row[1], row[2]) for row in events.rows()[1]] == [(4, 1), (4, 2)]
    assert [each["step"] for each in events.starts] == [0, 3]


def test_a_checkpoint_is_taken_and_then_on_disk() -> None:
    events = read(
        "trainyard checkpoint step=5 stall_seconds=0.1", "trainyard durable step=5 bytes=7"
    )
    assert events.checkpoints == {5: {"step": 5, "written_at": 0.0, "durable_at": 1.0, "bytes": 7}}


def test_lines_of_other_programs_are_only_in_the_tail() -> None:
    events = read("Downloading...", "[1,mpirank:0,algo-1]<stdout>: trainyard step=1 loss=3.0")
    assert len(events.log_tail) == 2
    assert len(events.rows()[1]) == 1


def test_a_line_of_any_length_is_cut_in_the_tail() -> None:
    events = read("50%\r" * 100_000, "short")
    assert [len(each.text) for each in events.log_tail] == [training_events.LONGEST_LINE, 5]


LINES = st.lists(
    st.sampled_from(
        ["step=1 loss=2.0", "step=2 loss=1.0", "eval step=2 validation_loss=3.0", "start step=1"]
    ),
    max_size=80,
)


@given(
    texts=LINES, cuts=st.lists(st.integers(0, 80), max_size=6), most=st.sampled_from([4, 16, 99])
)
def test_who_asks_in_pieces_has_what_one_question_gives(
    texts: list[str], cuts: list[int], most: int
) -> None:
    """Also if the points are thinned meanwhile."""
    events = TrainingEvents()
    has: list[list[object]] = []
    stride = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_events, "MOST_POINTS", most)
        for index, text in enumerate([*texts, "end"]):
            if index in cuts or text == "end":
                after = has[-1][0] if has else -1
                assert isinstance(after, int)
                is_reset, rows = events.rows(after=after, stride=stride)
                has, stride = ([] if is_reset else has) + rows, events.stride
            events.read(line(f"trainyard {text}", at=index))
    assert has == events.rows(stride=stride)[1]


def test_memory_is_bounded_and_every_validation_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_events, "MOST_POINTS", 100)
    texts = [f"trainyard step={step} loss=1.0" for step in range(1000)]
    texts[500] = "trainyard eval step=500 validation_loss=2.0"
    events = read(*texts)
    _, rows = events.rows(stride=events.stride)
    assert 50 <= len(rows) <= 101
    assert any("validation_loss" in row[4] for row in rows)


def test_ever_so_many_validations_leave_room_for_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_events, "MOST_POINTS", 100)
    monkeypatch.setattr(training_events, "MOST_VALIDATIONS", 10)
    texts = [
        f"trainyard {'eval ' if step % 2 else ''}step={step} {'validation_' if step % 2 else ''}loss=1.0"
        for step in range(1000)
    ]
    events = read(*texts)
    assert events.stride <= 16
    assert sum("loss" in row[4] for row in events.rows(stride=events.stride)[1]) >= 25


def test_a_script_without_a_start_line_begins_again_with_each_stream() -> None:
    events = TrainingEvents()
    for stream, steps in (("job/algo-1-1", range(1, 11)), ("job/algo-1-2", range(4, 7))):
        for step in steps:
            text = f"trainyard step={step} loss=1.0"
            events.read(LogLine(job="job", stream=stream, time_ms=1000 * step, text=text))
    assert [(each["attempt"], each["step"]) for each in events.starts] == [(1, 0), (2, 3)]
    assert {row[2] for row in events.rows()[1]} == {1, 2}


@pytest.mark.parametrize(
    "text",
    [
        f"trainyard step={'9' * 5000}",
        "trainyard step=1 eta_seconds=inf",
        "trainyard checkpoint step=1 stall_seconds=nan",
    ],
    ids=["digits", "infinite", "not a number"],
)
def test_an_odd_line_is_in_the_tail_and_harms_nothing(text: str) -> None:
    events = read(text)
    assert len(events.log_tail) == 1
    assert (events.eta_s, events.stall_seconds) == (None, 0.0)


def test_processes_that_start_again_in_the_same_stream_ended_with_their_last_line() -> None:
    events = read(
        "trainyard start step=0 world_size=2",
        "trainyard step=1 loss=1.0",
        "trainyard alive step=2",
        "trainyard resume step=1 checkpoint=x",
        "trainyard start step=1 world_size=2",
    )
    assert events.starts[0]["restarted_from"] == 2
    assert "restarted_from" not in events.starts[1]
