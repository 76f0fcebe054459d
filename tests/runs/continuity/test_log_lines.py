"""A line of a rank under mpirun says what it says anywhere."""

from __future__ import annotations

import pytest

from trainyard.runs.continuity.log_lines import without_rank

LINE = "trainyard step=1 loss=2.5"


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
