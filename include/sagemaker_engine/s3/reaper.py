"""Removes files in the background, so that no request waits for a disk that frees blocks slowly.

On a file system that discards freed blocks at once, removing one file that has reached the disk
took 4 ms here, an overwrite would pay that on every put. What a killed process did not come to
remove is an unreferenced blob: `ObjectStore.recover` finds it.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Reaper:
    """One thread while there is something to remove, none otherwise.

    The thread is no daemon: a process that ends normally removes everything first.
    """

    _waiting: list[Path]
    _is_running: bool

    def __init__(self) -> None:
        self._reset()

    def remove(self, paths: Iterable[Path]) -> None:
        """Remove files soon; those that are gone already are fine."""
        if self._pid != os.getpid():
            self._reset()  # After a fork: the thread and what it holds belong to the parent.
        with self._changed:
            self._waiting += paths
            if not self._waiting or self._is_running:
                return
            self._is_running = True
        try:
            threading.Thread(target=self._work, name="s3-reaper").start()
        except RuntimeError:  # The interpreter is ending and starts no threads any more.
            self._work()

    def wait(self) -> None:
        """Return once everything handed over so far is gone."""
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
