"""Globs of sources, with one meaning for local files and for objects in S3.

Names and globs consist of parts between slashes. `*`, `?` and `[...]` match within one part, and `**`
matches any number of folders, including none. If a part of the name starts with a dot, the part of the glob
that matches it must start with a dot, too.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_WILDCARD = re.compile(r"[*?[]")
_FOLDERS = "**"


def glob_start(uri: str) -> str:
    """Return the text before the first wildcard; the whole text if there is none."""
    return _WILDCARD.split(uri, maxsplit=1)[0]


def is_match(name: str, pattern: str) -> bool:
    """Return whether a name matches a glob. The two are compared part by part, with slashes between the parts."""
    return _are_matches(name.split("/"), _parts(pattern))


def _are_matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    if not patterns or not names:
        return not names and set(patterns) <= {_FOLDERS}
    if patterns[0] == _FOLDERS:
        is_open = not names[0].startswith(".")
        return _are_matches(names, patterns[1:]) or (is_open and _are_matches(names[1:], patterns))
    is_hidden = names[0].startswith(".") and not patterns[0].startswith(".")
    is_first = not is_hidden and fnmatchcase(names[0], patterns[0])
    return is_first and _are_matches(names[1:], patterns[1:])


def local_matches(root: Path, pattern: str) -> tuple[set[Path], set[Path]]:
    """Return (paths, folders): the paths below `root` that match a glob, and the folders that were listed.

    Here, wildcards also match names that start with a dot; the caller excludes these paths by `is_match`. A
    symbolic link to a folder is listed if a part other than `**` matches its name.
    """
    parts = _parts(pattern)
    last = (
        ["*"] if parts[-1] == _FOLDERS else []
    )  # otherwise Path.glob returns folders only, before Python 3.13
    listed = parts[: parts.index(_FOLDERS) + 1] if _FOLDERS in parts else parts[:-1]
    heads = ("/".join(listed[:length]) for length in range(1, len(listed) + 1))
    folders = {each for head in heads for each in root.glob(head) if is_folder(each)}
    return set(root.glob("/".join(parts + last))), {root, *folders}


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; False if it cannot be examined."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _parts(pattern: str) -> list[str]:
    """Return the parts of a glob. As in the shell, `a**` is `a*`."""
    parts = pattern.rstrip("/").split("/")
    return [part if part == _FOLDERS else re.sub(r"\*+", "*", part) for part in parts]
