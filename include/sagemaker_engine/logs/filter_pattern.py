"""Filter patterns of CloudWatch Logs for unstructured text.

Source: "Filter pattern syntax for unstructured log events", CloudWatch Logs user guide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sagemaker_engine.wire.errors import ServiceError

_TERM = re.compile(r'([-?]?)(?:"([^"]*)"|(\S+))')


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterPattern:
    """Terms of a message: all of `all_of`, at least one of `any_of` unless it is empty, and none of `none_of`."""

    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()

    def matches(self, message: str) -> bool:
        """Return whether the message matches."""
        return (
            all(term in message for term in self.all_of)
            and (not self.any_of or any(term in message for term in self.any_of))
            and not any(term in message for term in self.none_of)
        )


def parse_pattern(text: str) -> FilterPattern:
    """Return the pattern of a text with terms, "phrases", ?alternatives and -exclusions.

    Raises:
        ServiceError: The text has one of the structured forms, which the engine does not support.
    """
    if text.lstrip()[:1] in {"{", "[", "%"}:
        raise ServiceError(
            "InvalidParameterException",
            f"Invalid filter pattern: {text}. The local engine has terms, quoted phrases, ?any and "
            "-none, not the JSON, space-delimited and regular expression forms.",
        )
    terms: dict[str, list[str]] = {"": [], "?": [], "-": []}
    for sign, phrase, word in _TERM.findall(text):
        terms[sign].append(phrase or word)
    return FilterPattern(
        all_of=tuple(terms[""]), any_of=tuple(terms["?"]), none_of=tuple(terms["-"])
    )
