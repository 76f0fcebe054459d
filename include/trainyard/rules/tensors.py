"""Selection of a rule's tensors, by collection and by patterns on names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.rules.records import StepRecord, TensorStatistics


def selected(
    record: StepRecord, *, collection_names: str | None = None, tensor_regex: str | None = None
) -> Iterator[tuple[str, TensorStatistics]]:
    """Yield `collection/tensor` and its statistics, selected by AWS's two parameters.

    Args:
        record: the step.
        collection_names: comma-separated names; None for all.
        tensor_regex: comma-separated patterns, searched in tensor names; None for all.
    """
    wanted = (
        None if collection_names is None else {each.strip() for each in collection_names.split(",")}
    )
    for collection, tensors in record.tensors.items():
        if wanted is not None and collection not in wanted:
            continue
        for name, statistics in tensors.items():
            if tensor_regex is None or _matches(tensor_regex, name):
                yield f"{collection}/{name}", statistics


def _matches(patterns: str, name: str) -> bool:
    return any(re.search(pattern.strip(), name) for pattern in patterns.split(","))
