"""Folders that somebody else writes, such as a library's checkpoints, as whole or torn: by a list of their files.

An interruption may leave half of a folder in S3. The list is written last.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILES = "files.json"


def write_file_list(folder: Path) -> int:
    """List the folder's files with their sizes, in a file beside them; return their bytes.

    Fails with OSError: the disk does not take it.
    """
    (folder / FILES).unlink(missing_ok=True)  # of a torn one of the same name: it would list itself
    sizes = {
        str(each.relative_to(folder)): each.stat().st_size
        for each in sorted(folder.rglob("*"))
        if each.is_file()
    }
    (folder / FILES).write_text(json.dumps(sizes), encoding="utf-8")
    return sum(sizes.values())


def is_whole(folder: Path) -> bool:
    """Return whether the folder has a list, and each file on it in its size."""
    try:
        sizes = json.loads((folder / FILES).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
