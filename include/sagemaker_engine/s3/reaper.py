"""Background removal of files: no request waits for a disk that frees blocks slowly.

On a file system that discards freed blocks at once, removing one file that had reached the disk took
4 ms (measured); without this thread every overwriting put would take that long. Files that a killed
process did not remove are unreferenced blobs: `ObjectStore.recover` finds them.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Reaper:
    """Removes files in one thread, which runs only while there are files to remove.

    The thread is not a daemon: a process that exits normally removes all files first.
    """

    _waiting: list[Path]
    _is_running: bool

    def __init__(self) -> None:
        self._reset()

    def remove(self, paths: Iterable[Path]) -> None:
        """Remove files in the background. Missing files are ignored."""
        if self._pid != os.getpid():
            self._reset()  # After a fork the thread and its queue belong to the parent.
        with self._changed:
            self._waiting += paths
            if not self._waiting or self._is_running:
                return
            self._is_running = True
        try:
            threading.Thread(target=self._work, name="s3-reaper").start()
        except RuntimeError:  # The interpreter is shutting down and starts no more threads.
            self._work()

    def wait(self) -> None:
        """Return when all files passed to `remove` so far are removed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_running)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._is_running = False
                    self._changed.notify_all()
                    return
                batch, self._waiting = self._waiting, []
            for path in batch:
                path.unlink(missing_ok=True)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting = []
        self._is_running = False
