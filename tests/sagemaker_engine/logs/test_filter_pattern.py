from __future__ import annotations

import pytest

from sagemaker_engine.logs.filtering import parse_pattern
from sagemaker_engine.wire.errors import ServiceError


@pytest.mark.parametrize(
    ("pattern", "message", "expected"),
    [
        ("", "anything", True),
        ("loss", "loss=1", True),
        ("loss step", "step=1 loss=1", True),
        ("loss step", "loss=1", False),
        ('"loss step"', "loss step", True),
        ('"loss step"', "step loss", False),
        ("?loss ?step", "step", True),
        ("?loss ?step", "nothing", False),
        ("step -eval", "step eval", False),
        ("step -eval", "step", True),
    ],
)
def test_pattern_finds_what_it_says(pattern: str, message: str, expected: bool) -> None:
    assert parse_pattern(pattern).matches(message) is expected


@pytest.mark.parametrize("pattern", ['{ $.a = "b" }', "[a, b]", "%regex%"])
def test_structured_forms_are_refused_by_name(pattern: str) -> None:
    with pytest.raises(ServiceError, match="terms, quoted phrases"):
        parse_pattern(pattern)
