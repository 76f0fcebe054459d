from __future__ import annotations

import pytest

from sagemaker_engine.tuning.completion import Criteria, SearchProgress, progress_of


def progress(*objectives: float, maximize: bool = False, dimensions: int = 1) -> SearchProgress:
    return progress_of(objectives, maximize=maximize, num_dimensions=dimensions, num_parallel=1)


def test_improvements_below_a_hundredth_do_not_count() -> None:
    found = progress(100.0, 99.5, 99.2, 98.9, 120.0)
    assert found.best == 98.9
    assert found.num_not_improving == 1  # 98.9 is 1.1% below 100; 99.5 and 99.2 were not enough.


def test_maximize_counts_the_other_way() -> None:
    assert progress(1.0, 2.0, 1.0, 1.0, maximize=True).num_not_improving == 2


def test_search_converges_after_ten_trials_without_improvement() -> None:
    assert progress(1.0, *[1.0] * 9).converged_at is None
    assert progress(1.0, *[1.0] * 10).converged_at == 10


def test_convergence_is_slower_in_more_dimensions_and_stays_once_seen() -> None:
    assert progress(1.0, *[1.0] * 15, dimensions=8).converged_at is None
    assert progress(1.0, *[1.0] * 16, 0.1, dimensions=8).converged_at == 16


@pytest.mark.parametrize(
    ("criteria", "objectives", "maximize", "met"),
    [
        (Criteria(), [1.0] * 50, False, False),
        (Criteria(target=0.5), [1.0, 0.6], False, False),
        (Criteria(target=0.5), [1.0, 0.5], False, True),
        (Criteria(target=0.5), [], False, False),
        (Criteria(target=0.9), [0.95], True, True),
        (Criteria(target=0.9), [0.85], True, False),
        (Criteria(max_not_improving=3), [1.0] * 3, False, False),
        (Criteria(max_not_improving=3), [1.0] * 4, False, True),
        (Criteria(on_convergence=True), [1.0] * 10, False, False),
        (Criteria(on_convergence=True), [1.0] * 11, False, True),
    ],
)
def test_criteria_are_met(
    criteria: Criteria, objectives: list[float], maximize: bool, met: bool
) -> None:
    found = progress(*objectives, maximize=maximize)
    assert criteria.are_met(found, maximize=maximize) is met
