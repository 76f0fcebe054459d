"""Regular expressions of the service models, which are written for Java."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

# Java writes characters outside the basic plane as two UTF-16 surrogates, Python as one code point.
_SURROGATE = r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_SURROGATE_RANGE = re.compile(f"{_SURROGATE * 2}-{_SURROGATE * 2}")
_ASTRAL_RANGE = r"\\U00010000-\\U0010FFFF"


def matches(pattern: str, text: str) -> bool:
    """Return whether `pattern` matches the whole text, as Java's `String.matches` does."""
    return _compile(pattern).fullmatch(text) is not None


@cache
def _compile(pattern: str) -> Any:
    translated = _SURROGATE_RANGE.sub(_ASTRAL_RANGE, pattern)
    try:
        return re.compile(translated)
    except re.error:  # \p{L} and ranges such as [\w-_] are Java syntax; few members use them.
        import regex  # type: ignore[import-untyped]  # noqa: PLC0415  # Slow to import.

        return regex.compile(translated, regex.V0)
