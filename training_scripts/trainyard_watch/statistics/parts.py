"""Statistics of one rank since its process started, in several files (parts): a finished part never changes.

The platform uploads whole files while the job runs, so it would upload a growing file again and again. Each part
begins with the header and has one line per record, written without buffering. A reader on the host sees a step within
milliseconds, and a killed process loses at most the line that it was writing.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import threading
import time
from typing import TYPE_CHECKING, Any, BinaryIO

from trainyard_watch.statistics.lines import line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)
NAME = re.compile(r"rank-(\d{5,})\.attempt-(\d{4,})\.part-(\d{4,})\.jsonl")
PART_BYTES, FIRST_PART_S, LONGEST_PART_S = 4 * 2**20, 30.0, 300.0
"""Limits of a part: its bytes, and its age of 30 s for the first part, doubled per later part up to 300 s."""
TRIED_AGAIN_AFTER_S = 30.0


def newest_attempt(folder: Path) -> int:
    """Return the highest attempt in the names of the folder's files; 0 for none.

    An attempt is the number of a start of the training processes.
    """
    found = [NAME.fullmatch(path.name) for path in folder.glob("rank-*.jsonl")]
    return max((int(match[2]) for match in found if match), default=0)


class PartWriter:
    """Writer that appends lines to the current part. A disk error loses statistics, but never ends the training.

    After an error the part is abandoned (a reader ignores its incomplete last line), and a new part is tried
    after 30 s. Safe to use from several threads.

    Args:
        folder: folder of the files, created with the first line.
        header: header of every part, to which the writer adds the key `part`. The values of `rank` and
            `attempt` are in the file names, too.
        marks_end: whether `close` creates the file `rank-<rank>.attempt-<attempt>.closed`. At the end, the
            upload to S3 (shipping.py) waits for this file.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        header: Mapping[str, Any],
        marks_end: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._header = folder, header
        self._name = f"rank-{header['rank']:05d}.attempt-{header['attempt']:04d}"
        self._marks_end = marks_end
        self._clock, self._lock = clock, threading.Lock()
        self._file: BinaryIO | None = None
        self._part = self._num_bytes = 0
        self._began_at, self._has_failed = 0.0, False
        self._closed_until = -math.inf

    def write(self, line: bytes) -> None:
        """Append one line, in a new part if the current one has reached its limits."""
        with self._lock:
            now = self._clock()
            if now < self._closed_until:
                return
            try:
                file = self._file
                if file is None or self._is_full(now):
                    file = self._begin_part(now)
                self._append(file, line)
            except OSError as error:
                self._give_up_part(error, now)

    def close(self) -> None:
        """Finish the current part; a later line begins a new one."""
        with self._lock:
            try:
                self._leave_part()
                if self._part and self._marks_end:
                    (self._folder / f"{self._name}.closed").touch()
            except OSError as error:
                self._give_up_part(error, self._clock())

    def _is_full(self, now: float) -> bool:
        longest_s = min(LONGEST_PART_S, FIRST_PART_S * 2 ** min(10, self._part - 1))
        return self._num_bytes >= PART_BYTES or now - self._began_at >= longest_s

    def _begin_part(self, now: float) -> BinaryIO:
        self._leave_part()
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._part + 1
        path = self._folder / f"{self._name}.part-{part:04d}.jsonl"
        file = self._file = path.open("wb", buffering=0)
        self._part, self._num_bytes, self._began_at = part, 0, now
        self._append(file, line_of({**self._header, "part": self._part}))
        return file

    def _append(self, file: BinaryIO, line: bytes) -> None:
        if file.write(line) != len(line):
            message = "only a part of a line was written"
            raise OSError(message)
        self._num_bytes += len(line)

    def _leave_part(self) -> None:
        file, self._file = self._file, None
        if file:
            file.close()

    def _give_up_part(self, error: OSError, now: float) -> None:
        with contextlib.suppress(OSError):  # a further error of the same disk
            self._leave_part()
        self._closed_until = now + TRIED_AGAIN_AFTER_S
        if not self._has_failed:
            self._has_failed = True
            log.error(
                "statistics cannot be written to %s, training continues without them: %s; rules have no statistics of "
                "this rank until the disk has space again",
                self._folder,
                error,
            )
