"""Steps that torch.profiler traces: the hyperparameter `trace_steps`."""

from __future__ import annotations

from trainyard_watch.errors import HyperparameterError

MOST_STEPS = 50  # of all spans together


def read_spans(text: str | None) -> tuple[range, ...]:
    """Return the spans of a text such as `10:13,200:201`, both ends included; an empty tuple for no text.

    Raises:
        HyperparameterError: the text is not a list of spans, or they have more than 50 steps.
    """
    spans = tuple(_span(each.strip(), text or "") for each in (text or "").split(",") if each)
    if sum(map(len, spans)) > MOST_STEPS:
        raise HyperparameterError(
            f"trace_steps {text!r} has {sum(map(len, spans))} steps, but a trace is large: at most "
            f"{MOST_STEPS} steps are allowed"
        )
    return spans


def _span(words: str, text: str) -> range:
    first, colon, last = words.partition(":")
    if not (colon and first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last)):
        raise HyperparameterError(
            f"trace_steps {text!r}: {words!r} is not a span; allowed: first:last, both included and from 1, separated "
            "by commas, such as 10:13 or 10:13,200:201"
        )
    return range(int(first), int(last) + 1)
