"""Seconds of a job are learned from the most similar earlier ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.planning.estimate.learning import OTHER_CLUSTER, SAME, SCALED, fit, learned_seconds
from trainyard.planning.estimate.measurement import JobMeasurement
from trainyard.planning.estimate.work import JobWork

WORK = JobWork(
    task_id="train",
    workload="gpt ddp fp32",
    kind="a",
    instance_type="ml.m5.large",
    instance_count=2,
    num_ranks=2,
    num_steps=100,
    operations=1e12,
)


def measured(loop_s: float | None = 50.0, *, fixed_s: float = 20.0, **work: Any) -> JobMeasurement:
    return JobMeasurement(
        work=replace(WORK, **work), on_instances_s=fixed_s + (loop_s or 0.0), loop_s=loop_s
    )


def test_nothing_similar_teaches_nothing() -> None:
    others = [measured(workload="mlp"), measured(task_id="tune"), measured(instance_type="ml.c5")]

    assert learned_seconds(WORK, others) is None


def test_same_kind_scales_with_the_work_and_keeps_the_start() -> None:
    found = learned_seconds(replace(WORK, num_steps=200, operations=2e12), [measured()])

    assert found is not None
    assert found.total.expected == pytest.approx(20 + 2 * 50)
    assert found.fixed_s == 20
    assert found.total.low == pytest.approx(SAME[0] * 120)
    assert found.total.high == pytest.approx(SAME[1] * 120)


def test_range_of_the_same_kind_covers_what_was_seen() -> None:
    found = learned_seconds(WORK, [measured(50), measured(90), measured(50), measured(20)])

    assert found is not None
    assert (found.total.low, found.total.expected, found.total.high) == (40, 70, 110)


def test_only_the_newest_count() -> None:
    found = learned_seconds(WORK, [*[measured(50)] * 5, *[measured(500)] * 6])

    assert found is not None
    assert found.total.expected == pytest.approx(70)


def test_other_sizes_are_told_apart_by_steps_and_operations() -> None:
    history = [
        measured(0.1 * 100 + 1e-11 * 1e12 / 2, kind="b", operations=1e12),
        measured(0.1 * 100 + 1e-11 * 4e12 / 2, kind="c", operations=4e12),
    ]

    found = learned_seconds(replace(WORK, kind="d", operations=2e12), history)

    assert found is not None
    assert found.total.expected == pytest.approx(20 + 10 + 10)
    assert found.total.high == pytest.approx(SCALED[1] * 40)


def test_operations_of_a_narrower_model_take_longer() -> None:
    narrow = measured(kind="b", slowdown=2.0)

    found = learned_seconds(replace(WORK, slowdown=1.5), [narrow])

    assert found is not None
    assert found.total.expected == pytest.approx(20 + 50 * 1.5 / 2)


def test_measurements_without_a_slowdown_are_compared_without_it() -> None:
    found = learned_seconds(replace(WORK, slowdown=1.5), [measured(kind="b")])

    assert found is not None
    assert found.total.expected == pytest.approx(20 + 50)


def test_other_number_of_instances_counts_by_rank() -> None:
    found = learned_seconds(replace(WORK, instance_count=4, num_ranks=4), [measured()])

    assert found is not None
    assert found.total.expected == pytest.approx(20 + 50 / 2)
    assert found.total.low == pytest.approx(OTHER_CLUSTER[0] * 45)


def test_job_without_steps_of_the_same_kind_is_as_long_as_before() -> None:
    own = replace(WORK, operations=0.0, num_steps=0)

    found = learned_seconds(own, [JobMeasurement(work=own, on_instances_s=33.0)])

    assert found is not None
    assert found.total.expected == 33


def test_whole_time_of_another_length_is_not_taken_for_the_same_kind() -> None:
    own = replace(WORK, task_id="evaluate", num_steps=0)
    history = [
        JobMeasurement(work=replace(own, operations=1e12), on_instances_s=20.0),
        JobMeasurement(work=replace(own, operations=3e12), on_instances_s=40.0),
    ]

    found = learned_seconds(replace(own, operations=2e12), history)

    assert found is not None
    assert found.total.expected == pytest.approx(30)
    assert "another size" in found.basis


def test_worked_example_of_the_fit() -> None:
    assert fit([(100, 0, 10), (100, 1e9, 30)]) == pytest.approx((0.1, 2e-8))


@given(a=st.floats(0, 1), b=st.floats(0, 1), sizes=st.lists(st.integers(1, 50), min_size=2))
def test_fit_is_never_negative_and_finds_what_made_the_rows(
    a: float, b: float, sizes: list[int]
) -> None:
    rows = [(10.0, float(size), 10 * a + size * b + 0.01) for size in sizes]

    found = fit(rows)

    assert min(found) >= 0
    if len(set(sizes)) > 1 and max(sizes) > 2 * min(sizes):
        for u, v, y in rows:
            assert found[0] * u + found[1] * v == pytest.approx(y, rel=0.05)


def test_rows_that_do_not_determine_both_keep_one() -> None:
    assert fit([(100, 1e9, 10), (200, 2e9, 20)]) == pytest.approx((0, 1e-8))
    assert fit([(1, 5, 10)], is_constant_first=True) == pytest.approx((10, 0))
