from __future__ import annotations

import pytest

from tests.runs.comparison.samples import cell, comparison
from trainyard.runs.comparison.findings import findings_of, knee_of


def test_efficiency_is_a_rank_s_speed_beside_one_rank_s_of_the_same_strategy() -> None:
    found = findings_of(
        comparison(cell("ddp", 1, 100.0), cell("ddp", 2, 180.0), cell("fsdp", 1, 80.0))
    )

    assert [each.efficiency for each in found.rows] == pytest.approx([1, 0.9, 1])
    assert [each.base for each in found.rows] == ["ddp x 1", "ddp x 1", "fsdp x 1"]


def test_strategy_without_a_single_rank_is_held_against_the_reference() -> None:
    found = findings_of(comparison(cell("ddp", 1, 100.0), cell("tensor", 2, 120.0)))

    row = found.row("tensor x 2")
    assert row is not None
    assert (row.base, row.efficiency) == ("ddp x 1", pytest.approx(0.6))


def test_epoch_costs_its_time_on_all_instances() -> None:
    # 3600 samples at 10/s are 360 s; 2 instances at 0.36 USD/h: 0.072 USD
    found = findings_of(comparison(cell("ddp", 1, 10.0), cell("ddp", 2, 10.0)))

    assert found.rows[0].epoch_seconds == pytest.approx(360)
    assert [each.epoch_usd for each in found.rows] == pytest.approx([0.036, 0.072])
    assert found.cheapest == "ddp x 1"


@pytest.mark.parametrize(
    ("losses", "validation", "agrees"),
    [
        (((1, 5.5), (40, 2.01)), 2.5, True),
        (((1, 5.5), (40, 2.03)), 2.5, False),
        (((1, 5.5), (40, 2.0)), 2.6, False),
        (((3, 9.0),), 2.5, True),
    ],
    ids=["near", "one step too far", "validation too far", "no step in common"],
)
def test_losses_agree_within_the_tolerance(
    losses: tuple[tuple[int, float], ...], validation: float, agrees: bool
) -> None:
    other = cell("ddp", 2, 180.0, measures={"losses": losses, "validation_loss": validation})

    found = findings_of(comparison(cell("ddp", 1, 100.0), other))

    assert found.reference == "ddp x 1"
    assert [each.agrees for each in found.rows] == [None, agrees]


def test_failed_cell_takes_no_part_and_the_others_count() -> None:
    found = findings_of(
        comparison(cell("ddp", 1, None), cell("ddp", 2, 90.0), cell("fsdp", 2, 80.0))
    )

    assert found.reference == "ddp x 2"
    assert [each.name for each in found.rows] == ["ddp x 2", "fsdp x 2"]
    assert found.fastest == "ddp x 2"


def test_nothing_follows_from_nothing() -> None:
    found = findings_of(comparison(cell("ddp", 1, None)))

    assert (found.reference, found.rows, found.knees, found.fastest) == (None, (), (), None)


@pytest.mark.parametrize(
    ("points", "ranks", "is_seen"),
    [
        ([(1, 100), (2, 180), (4, 220)], 2, True),
        ([(1, 100), (2, 180), (4, 300)], 4, False),
        ([(1, 100), (2, 140), (4, 400)], 1, True),
        ([(2, 100)], 2, False),
    ],
    ids=["stops at 2", "still pays", "never paid", "one number of ranks"],
)
def test_knee_is_before_the_first_ranks_that_bring_too_little(
    points: list[tuple[int, float]], ranks: int, is_seen: bool
) -> None:
    found = knee_of("ddp", points, worthwhile=0.5)

    assert (found.ranks, found.is_seen) == (ranks, is_seen)


def test_knee_says_what_each_added_rank_brought() -> None:
    found = knee_of("ddp", [(1, 100), (2, 180), (4, 220)], worthwhile=0.5)

    assert found.words == (
        "2 ranks pay, 4 do not: from 1 to 2 ranks each added rank gains 80%; "
        "from 2 to 4 ranks each added rank gains 20% of the speed of one rank alone"
    )
