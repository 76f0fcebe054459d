"""Detection of writes in folders, with the kernel's inotify(7)."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from sagemaker_engine.sandbox import linux

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

IN_MODIFY = 0x002
IN_MOVED_TO = 0x080
IN_CREATE = 0x100
IN_QUEUE_OVERFLOW = 0x4000
IN_IS_DIRECTORY = 0x4000_0000
_WRITES = IN_CREATE | IN_MODIFY | IN_MOVED_TO
_EVENT = struct.Struct("iIII")
_READ_BYTES = 1 << 16


class FolderWatch:
    """Detects files that are created, written or moved under some folders after `begin`.

    A subfolder that is created or moved there does not count, but the files in it do.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        """Prepare the watch; the folders need not exist before `begin`."""
        self._folders = list(folders)
        self._descriptor: int | None = None
        self._watched: set[str] = set()

    def begin(self) -> None:
        """Start to watch. Earlier changes are not reported.

        Raises OSError if the kernel rejects the watch, for example because too many are in use.
        """
        self._descriptor = linux.inotify()
        self._watch_all(self._descriptor)

    def has_changed(self) -> bool:
        """Return whether a file was written since the last call."""
        if self._descriptor is None:
            return False
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        masks = list(_masks(data))
        is_written = any(
            mask & (_WRITES | IN_QUEUE_OVERFLOW) and not mask & IN_IS_DIRECTORY for mask in masks
        )
        if any(mask & (IN_IS_DIRECTORY | IN_QUEUE_OVERFLOW) for mask in masks):
            # Files that a new folder had before it was watched have no event of their own.
            is_written = self._watch_all(self._descriptor) or is_written
        return is_written

    def close(self) -> None:
        """Close the watch."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _watch_all(self, descriptor: int) -> bool:
        """Watch all folders that exist now, and their subfolders.

        Return whether a folder that was not watched before contains a file.
        """
        before, self._watched = self._watched, set()
        for folder in self._folders:
            for parent, _, _ in os.walk(folder):
                linux.inotify_watch(descriptor, parent, _WRITES)
                self._watched.add(parent)
        return any(map(_has_file, self._watched - before))


def _has_file(folder: str) -> bool:
    with suppress(OSError), os.scandir(folder) as entries:  # of a folder that is gone again
        return any(not entry.is_dir(follow_symlinks=False) for entry in entries)
    return False


def _masks(data: bytes) -> Iterable[int]:
    """Yield the mask of each inotify event in `data`.

    Each struct inotify_event is followed by a name of `len` bytes, which is skipped.
    """
    start = 0
    while start < len(data):
        _, mask, _, length = _EVENT.unpack_from(data, start)
        yield mask
        start += _EVENT.size + length
