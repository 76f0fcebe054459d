"""Lock of a state folder: at most one engine uses it."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PATIENCE_S = 2.0
_RETRY_S = 0.05


class RootInUseError(Exception):
    """Another engine has locked the state folder."""


@contextmanager
def hold_root(path: Path) -> Iterator[None]:
    """Hold the lock file `path` while the body runs. The kernel releases the lock if the process dies.

    A failed attempt is repeated for 2 s, in case the previous engine is about to exit.

    Raises:
        RootInUseError: Another engine holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        _acquire(lock, path)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _acquire(lock: TextIO, path: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                lock.seek(0)
                holder = lock.read().strip() or "unknown"
                raise RootInUseError(
                    f"{path.parent} is in use by the engine with process id {holder}; stop it or "
                    "give another --root"
                ) from error
            time.sleep(_RETRY_S)
        else:
            return
