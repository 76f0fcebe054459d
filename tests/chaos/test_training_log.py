"""What a strike cost the training, from what the training printed."""

from __future__ import annotations

import pytest

from chaos.training_log import Cost, LogMark, cost_of, parse_mark

FOREVER = float("inf")


def steps(first: int, last: int, *, at: float) -> list[LogMark]:
    """A step each second."""
    return [LogMark(at=at + step - first, step=step) for step in range(first, last + 1)]


UNBROKEN = [LogMark(at=0.0, step=0, is_start=True), *steps(1, 30, at=1.0)]
BROKEN = [*UNBROKEN, LogMark(at=40.0, step=20, is_start=True), *steps(21, 50, at=41.0)]


def test_an_interruption_costs_the_steps_since_the_checkpoint_and_the_time_to_do_them_again() -> (
    None
):
    cost = cost_of(30.5, BROKEN, until=FOREVER)
    assert cost == Cost(reached=30, resumed_at=20, seconds=51.0 - 30.5)
    assert cost.steps_redone == 10


def test_a_training_that_did_not_start_again_lost_nothing() -> None:
    assert cost_of(12.0, UNBROKEN, until=FOREVER) is None


def test_a_start_after_the_next_strike_is_that_ones() -> None:
    assert cost_of(10.0, BROKEN, until=20.0) is None


def test_a_training_that_never_got_further_has_lost_all_the_time_to_its_end() -> None:
    marks = [*UNBROKEN, LogMark(at=40.0, step=20, is_start=True), *steps(21, 25, at=41.0)]
    assert cost_of(30.5, marks, until=FOREVER) == Cost(reached=30, resumed_at=20, seconds=14.5)


def test_steps_that_an_earlier_strike_rolled_back_are_not_counted_again() -> None:
    second = [LogMark(at=60.0, step=20, is_start=True), *steps(21, 50, at=61.0)]
    first = [LogMark(at=40.0, step=20, is_start=True), *steps(21, 25, at=41.0)]
    marks = [*UNBROKEN, *first, *second]

    assert cost_of(30.5, marks, until=45.5) == Cost(reached=30, resumed_at=20, seconds=14.5)
    assert cost_of(45.5, marks, until=FOREVER) == Cost(reached=25, resumed_at=20, seconds=20.5)


@pytest.mark.parametrize(
    ("line", "mark"),
    [
        ("trainyard start step=20 world_size=2 seed=0", LogMark(at=5.0, step=20, is_start=True)),
        ("trainyard step=21 loss=2.5 samples=320:336", LogMark(at=5.0, step=21)),
        ("trainyard done step=50 weights_sha256=ab", None),
        ("trainyard durable step=40 seconds=0.1", None),
        ("trainyard eval step=40 validation_loss=2.5", None),
        ("step=40", None),
    ],
    ids=["start", "step", "done", "durable", "eval", "foreign"],
)
def test_a_log_line_tells_of_progress_or_not(line: str, mark: LogMark | None) -> None:
    assert parse_mark(line, at=5.0) == mark
