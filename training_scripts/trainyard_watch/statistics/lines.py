"""Records as lines of strict JSON; NaN and infinities are the texts "nan", "inf" and "-inf"."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Columns = dict[str, "Sequence[float | None]"]  # statistic -> one value per tensor of the header
DIGITS = "%.7g"  # of a tensor's statistic: the precision of a float32


def line_of(record: Mapping[str, Any], tensors: Mapping[str, Columns] | None = None) -> bytes:
    """Return one line; keys whose value is None (not observed) are left out.

    Args:
        record: kind, step and the observed values.
        tensors: collection -> statistic -> values.
    """
    text = json.dumps(_plain(record), separators=(",", ":"), allow_nan=False)
    if tensors:
        text = f'{text[:-1]},"tensors":{_collections(tensors)}}}'
    return text.encode() + b"\n"


def _plain(value: Any) -> Any:
    """Return `value` with texts for NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _word(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def _word(value: float) -> str:
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _collections(tensors: Mapping[str, Columns]) -> str:
    parts = []
    for name, columns in tensors.items():
        written = ",".join(f'"{column}":[{_numbers(own)}]' for column, own in columns.items())
        parts.append(f'"{name}":{{{written}}}')
    return "{" + ",".join(parts) + "}"


def _numbers(values: Sequence[float | None]) -> str:
    """Return `values` as the text of a JSON list without its brackets.

    If all values are finite numbers, one pattern formats all of them, at a third of the cost of json.dumps.
    """
    try:
        text = ",".join([DIGITS] * len(values)) % tuple(values)
    except TypeError:  # one is None
        text = "n"
    return text if "n" not in text else ",".join(map(_number, values))


def _number(value: float | None) -> str:
    if value is None:
        return "null"
    return DIGITS % value if math.isfinite(value) else f'"{_word(value)}"'
