"""A training takes one slot of the pool for each of its instances, and never more than there are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.planning.pool_slots import cell_slots, first_instance_type, pool_slots, search_slots


@pytest.mark.parametrize(
    ("conf", "slots"),
    [
        ({}, 2),
        ({"instance_count": 5}, 5),
        ({"instance_count": "5"}, 5),
        ({"instance_count": 99}, 16),
        ({"instance_count": 0}, 1),
        ({"instance_count": "many"}, 2),
        ({"capacity_ladder": [{"instance_count": 4}, {"instance_count": 8}]}, 8),
        ({"instance_count": 3, "capacity_ladder": [{"instance_count": 1}, {}]}, 3),
        ({"capacity_ladder": "nonsense"}, 2),
        ({"instance_groups": [{"instance_count": 3}, {"instance_count": 2}]}, 5),
        ({"instance_groups": [], "instance_count": 3}, 3),
        ({"instance_groups": ["nonsense"], "instance_count": 3}, 3),
    ],
)
def test_slots_are_the_instances_of_the_largest_rung(conf: dict[str, Any], slots: int) -> None:
    assert pool_slots(conf, most=16) == slots


@given(count=st.integers(), most=st.integers(1, 100))
def test_a_training_always_fits_its_pool(count: int, most: int) -> None:
    assert 1 <= pool_slots({"instance_count": count}, most=most) <= most


@pytest.mark.parametrize(
    ("conf", "slots"),
    [
        ({}, 4),
        ({"tuning_max_parallel_jobs": 3, "instance_count": 4}, 12),
        ({"tuning_max_parallel_jobs": 3, "tuning_instance_count": 1, "instance_count": 4}, 3),
        ({"tuning_max_parallel_jobs": 50}, 16),
        ({"tuning_max_parallel_jobs": "many"}, 4),
    ],
    ids=["defaults", "trials as large as training", "smaller ones", "too many", "a bad value"],
)
def test_a_search_takes_the_instances_of_its_trials_at_a_time(
    conf: dict[str, Any], slots: int
) -> None:
    assert search_slots(conf, most=16) == slots


@pytest.mark.parametrize(
    ("conf", "slots"),
    [
        ({}, 16),
        ({"cells_at_once": 4}, 4),
        ({"cells_at_once": 8, "ranks": [1, 4]}, 4),
        ({"cells_at_once": 0, "ranks": [1, 4]}, 4),
        ({"cells_at_once": 0, "ranks": [8, 16], "processes_per_instance": 8}, 2),
        ({"cells_at_once": 0, "ranks": [8, 16], "instance_type": "ml.p4d.24xlarge"}, 2),
        ({"cells_at_once": 0, "strategies": [{"name": "a", "ranks": [6]}]}, 6),
        ({"cells_at_once": 0, "ranks": [64]}, 16),
        ({"cells_at_once": "many", "ranks": "nonsense", "strategies": 3}, 16),
    ],
    ids=[
        "alone",
        "a quarter",
        "its instances",
        "no bound",
        "full instances",
        "a rank for each accelerator",
        "own ranks",
        "too many",
        "bad values",
    ],
)
def test_a_cell_takes_its_instances_or_its_share_of_the_pool(
    conf: dict[str, Any], slots: int
) -> None:
    assert cell_slots(conf, most=16) == slots


@given(at_once=st.integers(1, 40), most=st.integers(1, 100))
def test_no_more_cells_than_wanted_fit_the_pool(at_once: int, most: int) -> None:
    slots = cell_slots({"cells_at_once": at_once, "ranks": [1]}, most=most)

    assert most // slots <= at_once
    assert most % at_once or most // slots == at_once


def test_pool_is_chosen_by_the_first_group() -> None:
    groups = [{"instance_type": "ml.g5.xlarge"}, {"instance_type": "ml.c5.xlarge"}]

    assert first_instance_type({"instance_type": "ml.m5.large", "instance_groups": groups}) == (
        "ml.g5.xlarge"
    )
