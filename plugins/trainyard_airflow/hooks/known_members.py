"""Selection of a dataclass's fields from data that a later release may have written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any


def known_members(cls: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the items of `data` that are fields of the dataclass; a later release may have written others.

    Raises:
        TypeError: `data` is not a mapping.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"expected a mapping with the fields of {cls.__name__}, got {data!r}")
    names = {each.name for each in fields(cls)}
    return {key: value for key, value in data.items() if key in names}
