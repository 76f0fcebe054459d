"""The lines of a training's log read as they were written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.training_line import TrainingLine, is_heartbeat, without_rank
from trainyard_watch.metrics import FORMATS, LINE_KEYS, QUOTED_KEYS, format_line

LINE = "trainyard step=1 loss=2.5"
WORDS = st.text("0123456789abcdef:", min_size=1)
_STEPS = st.integers(min_value=0)


def _value(key: str) -> st.SearchStrategy[Any]:
    if key in QUOTED_KEYS:
        return st.text()
    if key in FORMATS:
        return st.floats(width=32)
    return WORDS if key in {"attempt_id", "samples", "digest", "weights_sha256"} else _STEPS


EVENTS = st.sampled_from(sorted(LINE_KEYS)).flatmap(
    lambda event: st.tuples(
        st.just(event),
        st.fixed_dictionaries({}, optional={key: _value(key) for key in LINE_KEYS[event]}),
    )
)


@given(EVENTS)
def test_line_reads_as_it_was_written(written: tuple[str, dict[str, Any]]) -> None:
    event, values = written
    line = TrainingLine.parse(format_line(event, values))

    assert line is None if event == "step" and not values else line is not None
    if line is None:
        return
    assert line.kind == event
    texts = {
        key: value if key in QUOTED_KEYS else f"{value:{FORMATS.get(key, '')}}"
        for key, value in values.items()
    }
    assert line.values == texts


def test_truncated_line_has_its_complete_pairs() -> None:
    line = TrainingLine.parse('trainyard skipped step=3 reason="disk fu')

    assert line is not None
    assert (line.kind, line.step, line.values["reason"]) == ("skipped", 3, "disk")


@pytest.mark.parametrize("text", ["hello step=1", "trainyard", "", "x trainyard step=1"])
def test_lines_of_others_are_none(text: str) -> None:
    assert TrainingLine.parse(text) is None


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("trainyard step=10 loss=2.5", True),
        ("trainyard alive step=10", True),
        ("[1,mpirank:0,algo-1]<stdout>:", False),
        ("[default0]: trainyard checkpoint step=3", True),
        ("installing trainyard", False),
        ("my-trainyard step=1", False),
    ],
)
def test_heartbeats_are_the_scripts_own_lines(line: str, is_one: bool) -> None:
    assert is_heartbeat(line) is is_one


@pytest.mark.parametrize(
    "text",
    [LINE, f"[1,mpirank:0,algo-1]<stdout>:{LINE}", f"[1,mpirank:0,algo-1]<stdout>: {LINE}"],
    ids=["torchrun", "open-mpi-4", "open-mpi-5"],
)
def test_what_mpirun_puts_before_a_line_is_taken_off(text: str) -> None:
    assert without_rank(text) == LINE


@pytest.mark.parametrize(
    "text", ["[1,mpirank:0,algo-1]<stderr>: x", "[tag] trainyard", "<stdout>:x"]
)
def test_other_lines_stay(text: str) -> None:
    assert without_rank(text) == text
