"""Steps that a hyperparameter lists: `skip_steps` and `trace_steps`."""

from __future__ import annotations

import re

from trainyard_watch.errors import HyperparameterError

MOST_SKIPPED = 1000  # of all spans together
MOST_TRACED = 50
_SPAN = re.compile(r"(\d+)(?::(\d+))?")


def read_steps(text: str | None) -> frozenset[int]:
    """Return the steps of a text such as `77,80:82`, both ends of a span included; an empty set for an empty text.

    Raises:
        HyperparameterError: the text is not a list of steps and spans, or has more than 1000 steps.
    """
    steps: set[int] = set()
    for words in (text or "").split(","):
        if not words.strip():
            continue
        span = _span(words)
        if span is None:
            raise HyperparameterError(
                f"skip_steps {text!r} has the part {words.strip()!r}, which is neither a step nor a span; allowed: "
                "steps from 1 and spans first:last, separated by commas, such as 77 or 77,80:82"
            )
        steps.update(span[: MOST_SKIPPED + 1])  # a span may have more steps than memory
        if len(steps) > MOST_SKIPPED:
            raise HyperparameterError(
                f"skip_steps {text!r} has more than {MOST_SKIPPED} steps; check the data instead of skipping more"
            )
    return frozenset(steps)


def read_spans(text: str | None) -> tuple[range, ...]:
    """Return the spans of a text such as `10:13,200:201`, both ends included; an empty tuple for an empty text.

    Raises:
        HyperparameterError: the text is not a list of spans, or all spans together have more than 50 steps.
    """
    spans = []
    for words in (text or "").split(","):
        if not words:
            continue
        span = _span(words) if ":" in words else None
        if span is None:
            raise HyperparameterError(
                f"trace_steps {text!r} has the part {words.strip()!r}, which is not a span; allowed: spans first:last "
                "of steps from 1, both included, separated by commas, such as 10:13 or 10:13,200:201"
            )
        spans.append(span)
    num_steps = sum(span.stop - span.start for span in spans)
    if num_steps > MOST_TRACED:
        raise HyperparameterError(
            f"trace_steps {text!r} has {num_steps} steps; a trace is large, so at most {MOST_TRACED} are allowed"
        )
    return tuple(spans)


def _span(words: str) -> range | None:
    """Return the steps of `first:last` or of a single step, or None for another text."""
    found = _SPAN.fullmatch(words.strip())
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    return range(first, last + 1) if 1 <= first <= last else None
