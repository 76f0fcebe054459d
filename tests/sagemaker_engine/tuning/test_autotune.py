from __future__ import annotations

import pytest

from sagemaker_engine.tuning.plan import with_chosen_ranges
from sagemaker_engine.tuning.ranges import RangeKind, parse_ranges


@pytest.mark.parametrize(
    ("hint", "kind", "low", "high"),
    [
        ("8", RangeKind.INTEGER, 2, 32),
        ("1", RangeKind.INTEGER, 1, 4),
        ("0.1", RangeKind.CONTINUOUS, 0.01, 0.99),
        ("0.995", RangeKind.CONTINUOUS, 0.0995, 0.995),
        ("2.5", RangeKind.CONTINUOUS, 0.25, 25.0),
    ],
)
def test_range_is_chosen_around_the_hint(
    hint: str, kind: RangeKind, low: float, high: float
) -> None:
    ranges, fixed = with_chosen_ranges({"AutoParameters": [{"Name": "x", "ValueHint": hint}]})
    (found,) = parse_ranges(ranges).ranges
    assert (found.kind, found.low, found.high) == (kind, pytest.approx(low), pytest.approx(high))
    assert fixed == {}


@pytest.mark.parametrize("hint", ["adam", "0", "-1", "nan", "inf"])
def test_hint_that_is_no_positive_number_stays(hint: str) -> None:
    ranges, fixed = with_chosen_ranges({"AutoParameters": [{"Name": "x", "ValueHint": hint}]})
    assert parse_ranges(ranges).ranges == ()
    assert fixed == {"x": hint}
