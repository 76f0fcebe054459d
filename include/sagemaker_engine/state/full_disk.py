"""A full disk: how the errors of the operating system and of SQLite say so, and a reserve to delete with."""

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
"""What the index may grow by while 1,000 keys are deleted: a page of 4 KiB for each."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SQLITE_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error says that the disk, or the user's share of it, is full."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) in _SQLITE_FULL
    return isinstance(error, OSError) and error.errno in _FULL


class Reserve:
    """A file that takes up disk space, so that giving it up lets a full disk take the changes that free more."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fill(self) -> None:
        """Take the space; without room nothing is taken."""
        try:
            with self._path.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError as error:
            log.warning("no room for the reserve %s: %s", self._path, error)
            self.free()

    def free(self) -> None:
        """Give the space up."""
        self._path.unlink(missing_ok=True)
