"""Steps that a run skips: the hyperparameter `skip_steps`."""

from __future__ import annotations

import re

from trainyard_watch.errors import HyperparameterError

MOST_STEPS = 1000  # of all spans together
_SPAN = re.compile(r"(\d+)(?::(\d+))?")


def read_steps(text: str | None) -> frozenset[int]:
    """Return the steps of a text such as `77,80:82`, both ends of a span included; an empty set for no text.

    Raises:
        HyperparameterError: the text is not a list of steps and spans, or has more than 1000 steps.
    """
    steps: set[int] = set()
    too_many = HyperparameterError(
        f"skip_steps {text!r} has more than {MOST_STEPS} steps; so many bad batches have another cause"
    )
    for words in (text or "").split(","):
        if not words.strip():
            continue
        found = _SPAN.fullmatch(words.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not 1 <= first <= last:
            raise HyperparameterError(
                f"skip_steps {text!r}: {words!r} is not a step; allowed: steps from 1 and spans first:last, separated "
                "by commas, such as 77 or 77,80:82"
            )
        if last - first >= MOST_STEPS:
            raise too_many
        steps.update(range(first, last + 1))
    if len(steps) > MOST_STEPS:
        raise too_many
    return frozenset(steps)
