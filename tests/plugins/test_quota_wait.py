"""A full quota is asked for again and again, ever less often, and no longer than its rung allows."""

from __future__ import annotations

from hypothesis import given, strategies as st

import tests.dags.airflow_home  # noqa: F401
from trainyard_airflow.jobs.quota_wait import QuotaWait

BEGAN = QuotaWait.begin(1000.0)


def test_a_rung_is_waited_for_as_long_as_it_allows() -> None:
    assert not BEGAN.is_over(60, now=1059)
    assert BEGAN.is_over(60, now=1060)
    assert not BEGAN.is_over(0, now=1e9)


def test_the_next_rung_has_its_own_time() -> None:
    moved = BEGAN.refused().given_up(0, now=1060)

    assert (moved.full_rungs, moved.refusals, moved.began_at) == ((0,), 1, 1000)
    assert not moved.is_over(60, now=1119)


@given(refusals=st.integers(1, 100), shortest_s=st.floats(0.5, 300))
def test_pauses_grow_up_to_five_minutes(refusals: int, shortest_s: float) -> None:
    wait = QuotaWait(began_at=0, rung_began_at=0, refusals=refusals)

    assert shortest_s <= wait.pause_s(shortest_s) <= wait.refused().pause_s(shortest_s) <= 300


def test_pauses_double() -> None:
    wait, pauses = BEGAN, []
    for _ in range(6):
        wait = wait.refused()
        pauses.append(wait.pause_s(15))

    assert pauses == [15, 30, 60, 120, 240, 300]
