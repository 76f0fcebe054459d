"""Spans of the answers in a rendered conversation, and the tokens that lie in them."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_BEGIN, _END = "\ufdd0", "\ufdd1"
"""Sentinels: Unicode noncharacters, which no text has."""
_SENTINELS = re.compile(f"[{_BEGIN}{_END}]")
_TAG = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")


def with_sentinels(template: str) -> str:
    """Return a chat template that writes a sentinel at each begin and end of `{% generation %}`.

    Each begin tag becomes two `{% with %}` tags, and each end tag becomes two `{% endwith %}` tags. The
    sentinel is between the two tags. A `with` block has the same scope as a `generation` block. The outer edges
    of the two tags keep the whitespace control of the replaced tag, such as `{%-`.
    """

    def tags(match: re.Match[str]) -> str:
        left, is_end, right = match.groups()
        tag, sentinel = ("endwith", _END) if is_end else ("with", _BEGIN)
        return f"{{%{left} {tag} %}}{sentinel}{{% {tag} {right}%}}"

    return _TAG.sub(tags, template)


def marked_spans(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text without its sentinels, and the spans of the answers in the returned text.

    A span is (begin, end) in characters. A sentinel (see `with_sentinels`) marks the begin or the end of an
    answer. An answer has no span if the template cut off one of its two sentinels.
    """
    spans, begin = [], None
    for number, match in enumerate(_SENTINELS.finditer(text)):
        at = match.start() - number
        if match.group() == _BEGIN:
            begin = at
        elif begin is not None:
            spans.append((begin, at))
            begin = None
    return _SENTINELS.sub("", text), spans


def common_length(one: str, two: str) -> int:
    """Return the length of the common prefix of two texts, in characters."""
    if two.startswith(one):
        return len(one)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


def trained_tokens(
    text: str, offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]
) -> list[bool]:
    """Return for each token whether it overlaps a span.

    A tokenizer with `trim_offsets` gives tokens of whitespace an empty range. Such a range is extended over the
    whitespace before it.

    Args:
        text: the tokenized text.
        offsets: the begin and end of each token, in characters of the text.
        spans: begins and ends, in characters.
    """
    trained, last = [], 0
    for begin, end in offsets:
        if begin == end and text[last:begin].isspace():
            begin = last  # noqa: PLW2901  # the whitespace that was trimmed
        trained.append(any(begin < stop and end > start for start, stop in spans))
        last = max(last, end)
    return trained
