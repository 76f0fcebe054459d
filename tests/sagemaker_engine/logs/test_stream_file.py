from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from sagemaker_engine.logs.stream_file import TimeRange, read_backward, read_forward

if TYPE_CHECKING:
    from pathlib import Path

ALL = TimeRange()


def write(path: Path, lines: list[str], *, rest: str = "") -> Path:
    records = [json.dumps({"t": 1000 + i, "m": line}) + "\n" for i, line in enumerate(lines)]
    path.write_text("".join(records) + rest)
    return path


def forward(path: Path, limit: int) -> list[str]:
    seen: list[str] = []
    page = read_forward(path, offset=0, limit=limit, times=ALL)
    while page.events:
        seen += [event.message for event in page.events]
        page = read_forward(path, offset=page.end, limit=limit, times=ALL)
    return seen


def backward(path: Path, limit: int) -> list[str]:
    seen: list[str] = []
    page = read_backward(path, offset=None, limit=limit, times=ALL)
    while page.events:
        seen = [event.message for event in page.events] + seen
        page = read_backward(path, offset=page.start, limit=limit, times=ALL)
    return seen


@settings(max_examples=30, deadline=None)
@given(
    lines=st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=12),
    limit=st.integers(1, 5),
)
def test_pages_in_both_directions_hold_every_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], limit: int
) -> None:
    path = write(tmp_path_factory.mktemp("log") / "a.jsonl", lines)
    assert forward(path, limit) == lines
    assert backward(path, limit) == lines


@pytest.mark.parametrize("length", [1_000, 400_000], ids=["short-lines", "long-lines"])
def test_page_ends_at_one_mebibyte(tmp_path: Path, length: int) -> None:
    lines = [f"{i}".ljust(length, "x") for i in range(3_000_000 // length)]
    path = write(tmp_path / "a.jsonl", lines)
    page = read_forward(path, offset=0, limit=10_000, times=ALL)
    assert 0 < sum(event.size_bytes for event in page.events) <= 1 << 20
    assert forward(path, 10_000) == lines
    assert backward(path, 10_000) == lines


def test_line_that_is_being_written_is_not_there_yet(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ["one"], rest='{"t": 1, "m": "ha')
    assert forward(path, 5) == ["one"]
    assert backward(path, 5) == ["one"]


def test_half_line_of_a_killed_writer_is_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ["one"], rest='{"t": 1, "m\n{"t": 2, "m": "two"}\n')
    assert forward(path, 5) == ["one", "two"]


def test_time_range_has_its_start_and_lacks_its_end(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ["a", "b", "c"])
    times = TimeRange(start=1000, end=1002)
    page = read_forward(path, offset=0, limit=9, times=times)
    assert [event.message for event in page.events] == ["a", "b"]


def test_newest_page_looks_past_what_the_time_range_leaves_out(tmp_path: Path) -> None:
    lines = ["wanted"] + ["x" * 100_000] * 30
    path = write(tmp_path / "a.jsonl", lines)
    page = read_backward(path, offset=None, limit=9, times=TimeRange(end=1001))
    assert [event.message for event in page.events] == ["wanted"]
