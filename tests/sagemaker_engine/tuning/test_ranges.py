from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sagemaker_engine.tuning.ranges import Range, RangeError, RangeKind, RangeScaling, parse_ranges


def numeric(kind: str, low: str, high: str, scaling: str | None = None) -> dict[str, Any]:
    one = {"Name": "x", "MinValue": low, "MaxValue": high}
    return {f"{kind}ParameterRanges": [one | ({"ScalingType": scaling} if scaling else {})]}


@pytest.mark.parametrize(
    ("kind", "low", "high", "scaling", "said"),
    [
        ("Integer", "5", "4", None, r"MinValue \[5\] must be less than or equal to MaxValue \[4\]"),
        ("Continuous", "a", "4", None, r"MinValue \[a\] must be a number"),
        ("Continuous", "0", "inf", None, r"MaxValue \[inf\] must be a number"),
        ("Integer", "1", "2.5", None, r"MaxValue \[2.5\] must be an integer"),
        ("Continuous", "0", "1", "Logarithmic", "only values greater than 0"),
        ("Integer", "0", "8", "Logarithmic", "only values greater than 0"),
        ("Integer", "0", "8", "ReverseLogarithmic", "only for continuous"),
        ("Continuous", "0", "1", "ReverseLogarithmic", r"within 0 <= x < 1.0; got \[0, 1\]"),
        ("Continuous", "-1", "0.5", "ReverseLogarithmic", "within 0 <= x < 1.0"),
    ],
)
def test_range_that_cannot_be_searched_says_why(
    kind: str, low: str, high: str, scaling: str | None, said: str
) -> None:
    with pytest.raises(RangeError, match=said):
        parse_ranges(numeric(kind, low, high, scaling))


@pytest.mark.parametrize(
    ("low", "high", "scaling"),
    [
        ("0.0001", "0.1", RangeScaling.LOGARITHMIC),
        ("1", "99", RangeScaling.LINEAR),
        ("1", "100", RangeScaling.LOGARITHMIC),
        ("0", "1000", RangeScaling.LINEAR),
        ("-5", "10", RangeScaling.LINEAR),
    ],
)
def test_auto_is_logarithmic_over_two_orders_of_magnitude(
    low: str, high: str, scaling: RangeScaling
) -> None:
    (found,) = parse_ranges(numeric("Continuous", low, high)).ranges
    assert found.scaling is scaling


def test_space_counts_and_enumerates_its_points() -> None:
    space = parse_ranges(
        {
            "IntegerParameterRanges": [{"Name": "n", "MinValue": "1", "MaxValue": "3"}],
            "CategoricalParameterRanges": [{"Name": "c", "Values": ["a", "b"]}],
        }
    )
    assert space.num_points == 6
    points = list(space.points())
    assert len({tuple(point.items()) for point in points}) == 6
    assert points[0] == {"n": "1", "c": "a"}
    assert parse_ranges(numeric("Continuous", "0", "1")).num_points == math.inf


def test_projection_leaves_out_points_outside() -> None:
    space = parse_ranges(numeric("Integer", "1", "3"))
    assert space.project({"x": "2", "static": "s"}) == {"x": "2"}
    for outside in ({"x": "4"}, {"x": "2.5"}, {"x": "two"}, {"y": "2"}):
        assert space.project(outside) is None


@given(
    low=st.floats(-1e6, 1e6),
    width=st.floats(0, 1e6),
    share=st.floats(0, 1),
)
def test_written_value_is_read_back(low: float, width: float, share: float) -> None:
    one = Range(name="x", kind=RangeKind.CONTINUOUS, low=low, high=low + width)
    text = one.write(low + share * width)
    assert one.read(text) == float(text)
    assert one.write(float(text)) == text


@given(share=st.floats(0, 0.999))
@pytest.mark.parametrize(
    ("low", "high", "scaling"),
    [
        ("-5", "10", "Linear"),
        ("0.0001", "1", "Logarithmic"),
        ("0.5", "0.999", "ReverseLogarithmic"),
    ],
)
def test_share_of_a_value_is_where_it_was_drawn(
    low: str, high: str, scaling: str, share: float
) -> None:
    (found,) = parse_ranges(numeric("Continuous", low, high, scaling)).ranges
    assert found.share_of(found.at(share)) == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize("scaling", ["Linear", "Logarithmic"])
def test_every_whole_number_is_at_its_own_share(scaling: str) -> None:
    (found,) = parse_ranges(numeric("Integer", "1", "300", scaling)).ranges
    assert [found.at(found.share_of(text)) for text in found] == list(found)


def test_every_category_is_at_its_own_share_and_one_value_in_the_middle() -> None:
    found = Range(name="c", kind=RangeKind.CATEGORICAL, values=("a", "b", "a", "c"))
    assert [found.share_of(text) for text in "abc"] == pytest.approx([1 / 6, 1 / 2, 5 / 6])
    assert Range(name="x", kind=RangeKind.CONTINUOUS, low=2, high=2).share_of("2.0") == 0.5
