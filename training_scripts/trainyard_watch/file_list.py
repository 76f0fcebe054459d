"""File lists for folders that other code writes, such as a library's checkpoints.

An interruption may leave an incomplete folder in S3. A folder's list is therefore written last. The folder
is complete if all files in its list are present with their sizes. The list names the files of all hosts.
The platform collects these files in S3, and copies all of them to every host at a restart.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING

from trainyard_watch.retention import step_folders

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILES = "files.json"


def file_sizes(folder: Path) -> dict[str, int]:
    """Return the sizes in bytes of the folder's files on this host by relative name, without `files.json`."""
    return {
        str(each.relative_to(folder)): each.stat().st_size
        for each in sorted(folder.rglob("*"))
        if each.is_file() and each != folder / FILES
    }


def write_file_list(folder: Path, *, others: Mapping[str, int] = MappingProxyType({})) -> int:
    """Write `files.json` with the names and sizes of the folder's files; return the sum of the sizes in bytes.

    Args:
        folder: the folder on this host.
        others: file name -> size in bytes, for the files in the folders of the other hosts.

    Raises:
        OSError: the list cannot be written.
    """
    sizes = {**others, **file_sizes(folder)}
    (folder / FILES).write_text(json.dumps(sizes), encoding="utf-8")
    return sum(sizes.values())


def is_whole(folder: Path) -> bool:
    """Return whether the folder has a file list, and all listed files are present with their listed sizes."""
    try:
        sizes = json.loads((folder / FILES).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def newest_whole(folder: Path, begins: str) -> Path | None:
    """Return the newest complete folder named `<begins><digits>`, or None. The digits are its step.

    A folder is complete if `is_whole` returns True for it.
    """
    return next((path for _, path in step_folders(folder, begins) if is_whole(path)), None)
