"""Amounts read well and keep their order."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from trainyard.units import format_bytes, format_count, format_duration, format_usd


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (2.34, "2.3 s"),
        (42, "42 s"),
        (59.6, "1 min 00 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 05 min"),
        (277_200, "3 d 5 h"),
    ],
)
def test_a_duration_is_written_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1_531_904, "1.46 MiB"),
        (1020 * 1024, "1020 KiB"),
        (2e15, "1819 TiB"),
    ],
)
def test_a_size_is_written_in_binary_units(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "unknown"),
        (0, "$0.00"),
        (0.0123, "$0.0123"),
        (0.23, "$0.23"),
        (0.5, "$0.50"),
        (12.3, "$12.30"),
        (1234.5, "$1,234.50"),
    ],
)
def test_an_amount_of_money_is_never_zero_when_unknown(amount: float | None, text: str) -> None:
    assert format_usd(amount) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(950, "950"), (999.6, "1k"), (12_340, "12.3k"), (4.56e6, "4.56M"), (2.5e15, "2500T")],
)
def test_a_count_gets_a_metric_suffix(number: float, text: str) -> None:
    assert format_count(number) == text


@given(st.floats(0, 1e9))
def test_every_duration_has_a_text(seconds: float) -> None:
    assert format_duration(seconds)[0].isdigit()
