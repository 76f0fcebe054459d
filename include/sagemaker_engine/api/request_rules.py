"""Rules that the Create requests of several kinds of jobs share."""

from __future__ import annotations

from posixpath import normpath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def duplicate_tags(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield an error if a request has the same tag key twice."""
    if twice := repeated([tag["Key"] for tag in request.get("Tags", [])]):
        yield f"Duplicate tag keys found: {twice}. Tag keys must be unique per resource."


def duplicates(noun: str, names: Sequence[str]) -> Iterator[str]:
    """Yield an error if a name is given more than once; `noun` is the plural, such as `Channel names`."""
    if twice := repeated(names):
        yield f"{noun} must be unique; {twice} is given more than once."


def repeated(names: Sequence[str]) -> str:
    """Return the names that occur more than once, sorted and separated by commas; empty if there are none."""
    return ", ".join(sorted({name for name in names if names.count(name) > 1}))


def is_folder_path(path: str) -> bool:
    """Return whether a path can be a folder in a container: absolute, not the root, and without NUL."""
    return path.startswith("/") and normpath(path).strip("/") != "" and "\0" not in path
