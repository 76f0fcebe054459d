"""Full disks: detection of disk-full errors, and reserved disk space that makes it possible to delete objects."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

RESERVE_BYTES = 4 << 20
"""Size of the reserve: the growth of the index while 1,000 keys are deleted, at most one 4 KiB page per key."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SQLITE_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error means that the disk, or the user's disk quota, is full."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) in _SQLITE_FULL
    return isinstance(error, OSError) and error.errno in _FULL


class Reserve:
    """A file that reserves `RESERVE_BYTES` of disk space for the deletion of objects.

    If a deletion fails because the disk is full, the object store removes this file, repeats the deletion in
    the freed space, and then allocates the file again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def fill(self) -> None:
        """Allocate the space. If there is no room, log a warning and allocate nothing."""
        try:
            with self._path.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError as error:
            log.warning("no disk space for the reserve %s: %s", self._path, error)
            self.free()

    def free(self) -> None:
        """Release the space."""
        self._path.unlink(missing_ok=True)
