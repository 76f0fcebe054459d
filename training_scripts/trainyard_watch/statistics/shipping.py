"""The statistics of one host's ranks, put to S3 while the job runs: merged into one stream of objects.

The ranks write their lines to files on the host's own disk. A thread of the host's first rank reads what is new and
puts it as one object for all ranks: every second at first, every minute once the job is an hour old, and at once if a
line holds a number that is not finite. An object never changes, and the names count up, so that a reader lists those
after the last one that it has seen:

    <prefix>/0001.algo-1/00000001.bundle      attempt 1 on host algo-1
    {"file": "rank-00000.attempt-0001.part-0001.jsonl", "bytes": 1234}    then so many bytes: whole lines
    {"file": "rank-00001.attempt-0001.part-0001.jsonl", "bytes": 980}     and so on

Nothing of this lies below the checkpoints: the platform restores those to every host.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainyard_watch.s3_prefix import S3UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trainyard_watch.s3_prefix import S3Prefix

log = logging.getLogger(__name__)

STATISTICS_VARIABLE = "TRAINYARD_STATISTICS_S3_URI"
FASTEST_S, SLOWEST_S = 1.0, 60.0
AGE_SHARE = 1 / 60
"""The pause between two objects is this share of the job's age."""
LOOK_S = 0.25
BUNDLE_BYTES = 4 * 2**20
READ_BYTES = 2**20  # of one file at once
PARTS_KEPT = 4
"""Shipped parts of each rank that stay on the disk, for whoever reads beside the job."""
LAST_WAIT_S = 5.0
"""So long the last object waits for the host's other ranks to close their files."""
FIRST_REST_S, LONGEST_REST_S = 5.0, 300.0
"""The pause after a fault of S3 doubles from the first to the longest; meanwhile the lines stay on the disk."""
STREAM = re.compile(r"(\d{4,})\.(.+)")
PART = re.compile(r"(rank-\d{5,}\.attempt-\d{4,})\.part-(\d{4,})\.jsonl")
NOT_FINITE = re.compile(rb'"(?:nan|-?inf)"')
ENDS = re.compile(rb'"mark":"(?:done|checkpoint_failed)"')
CANNOT_SHIP = (
    "STATISTICS DO NOT REACH S3 (%s): rules read the job's log meanwhile; S3 is tried again after 5 s to 5 minutes. "
    "Give the job's role s3:ListBucket and s3:PutObject on the prefix, and a way to S3"
)
TAKEN = (
    "STATISTICS DO NOT REACH S3: attempt %d is there already (%s), and S3 did not answer when this one began; rules "
    "read the job's log"
)


def pause_s(age_s: float) -> float:
    """Return the seconds between two objects at an age of the job.

    Worked values: 1 s at 30 s, 10 s at 10 minutes, 60 s from an hour on.
    """
    return min(SLOWEST_S, max(FASTEST_S, age_s * AGE_SHARE))


def newest_attempt_in(s3: S3Prefix) -> int:
    """Return the highest attempt that any host has put; 0 for none.

    Raises:
        S3UnavailableError: S3 cannot be asked.
    """
    found = (STREAM.fullmatch(name) for name in s3.folders())
    return max((int(match[1]) for match in found if match), default=0)


@dataclass(slots=True, kw_only=True)
class Shipper:
    """Puts what is new in a folder to S3, on a thread of its own; its faults cost statistics, never the training.

    Args:
        folder: of the ranks' files.
        s3: the prefix of all attempts.
        attempt: of this start.
        host: such as algo-1.
        num_ranks: of this host; each leaves `<its files>.closed` when it writes no more.
        knows_attempt: whether S3 answered for the number of the attempt. If not, nothing is put until it answers, and
            nothing at all if this host has put an attempt of that number before.
        keeps_files: leave what was put on the disk.
    """

    folder: Path
    s3: S3Prefix
    attempt: int
    host: str
    num_ranks: int = 1
    knows_attempt: bool = True
    keeps_files: bool = False
    clock: Callable[[], float] = time.monotonic
    _offsets: dict[str, int] = field(default_factory=dict)
    _pending: list[bytes] = field(default_factory=list)
    _number: int = 0
    _unsent: bytes = b""
    _is_urgent: bool = False
    _num_urgent: int = 0
    _traces: set[str] = field(default_factory=set)
    _began_at: float = 0.0
    _sent_at: float = 0.0
    _rests_until: float = 0.0
    _num_faults: int = 0
    _has_said: bool = False
    _ends: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look."""
        self._began_at = self._sent_at = self.clock()
        self._thread = threading.Thread(target=self._run, name="statistics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Put the rest, and wait for that; bounded by the timeouts of S3."""
        self._ends.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def look(self, *, is_last: bool = False) -> None:
        """Take what is new, and put it if it is due; after a fault of S3 not before the pause is over."""
        now = self.clock()
        if (now < self._rests_until and not is_last) or not self._may_ship():
            return
        is_behind = self._take()
        if self._unsent or self._is_due(now) or (is_last and self._pending):
            self._ship(now, is_last=is_last)
        while is_last and is_behind and not self._unsent:
            is_behind = self._take()
            self._ship(now, is_last=True)
        self._ship_traces()

    def _run(self) -> None:
        try:
            while not self._ends.wait(LOOK_S):
                self.look()
            waits_until = self.clock() + LAST_WAIT_S
            while self._num_closed() < self.num_ranks and self.clock() < waits_until:
                time.sleep(LOOK_S / 5)
            self.look(is_last=True)
        except Exception:  # the thread's boundary: the training goes on without
            log.exception("statistics are not put to S3 any more")

    def _may_ship(self) -> bool:
        """Return whether the attempt's number is free in S3, which is asked until it answers."""
        if not self.knows_attempt:
            try:
                is_taken = self._stream in self.s3.folders()
            except S3UnavailableError as error:
                self._rest(error)
                return False
            self.knows_attempt = True
            if is_taken:
                self._rests_until = float("inf")
                log.warning(TAKEN, self.attempt, self.s3.uri)
        return self._rests_until < float("inf")

    def _num_closed(self) -> int:
        return len(list(self.folder.glob(f"rank-*.attempt-{self.attempt:04d}.closed")))

    def _take(self) -> bool:
        """Keep the whole lines that were written since, rank by rank, part by part; return whether files hold more."""
        is_behind = False
        parts: dict[str, list[Path]] = {}
        for path in sorted(self.folder.glob(f"rank-*.attempt-{self.attempt:04d}.part-*.jsonl")):
            match = PART.fullmatch(path.name)
            if match:
                parts.setdefault(match[1], []).append(path)
        for paths in parts.values():
            for path in paths:
                is_behind |= self._take_file(path)
            for path in paths[: -PARTS_KEPT - 1]:
                if not self.keeps_files and self._offsets.get(path.name) == path.stat().st_size:
                    path.unlink(missing_ok=True)
        return is_behind

    def _take_file(self, path: Path) -> bool:
        """Keep the file's next lines; return whether the file may hold more."""
        offset = self._offsets.get(path.name, 0)
        if path.stat().st_size <= offset:
            return False
        with path.open("rb") as file:
            file.seek(offset)
            lines = file.read(READ_BYTES)
            while b"\n" not in lines and (more := file.read(READ_BYTES)):
                lines += more
        is_behind = len(lines) >= READ_BYTES
        lines = lines[: lines.rfind(b"\n") + 1]
        if not lines:
            return False
        self._offsets[path.name] = offset + len(lines)
        head = json.dumps({"file": path.name, "bytes": len(lines)}).encode()
        self._pending.append(head + b"\n" + lines)
        self._is_urgent |= bool(NOT_FINITE.search(lines) or ENDS.search(lines))
        return is_behind

    def _is_due(self, now: float) -> bool:
        """Return whether the pause is over, or not waited for; what is urgent waits longer each time."""
        if not self._pending:
            return False
        pause = pause_s(now - self._began_at)
        if self._is_urgent:
            pause = min(pause, FASTEST_S / 2 * 2**self._num_urgent)
        return now - self._sent_at >= pause or sum(map(len, self._pending)) >= BUNDLE_BYTES

    def _ship(self, now: float, *, is_last: bool) -> None:
        """Put one object; what S3 did not take is put again as it was, since it may have arrived."""
        while self._unsent or self._pending:
            if not self._unsent:
                self._unsent = b"".join(self._pending)
                self._number += 1
                self._num_urgent += self._is_urgent
                self._pending, self._is_urgent = [], False
            try:
                self.s3.write(f"{self._stream}/{self._number:08d}.bundle", self._unsent)
            except S3UnavailableError as error:
                self._rest(error)
                return
            self._unsent, self._sent_at, self._num_faults = b"", now, 0
            if not is_last:
                return

    @property
    def _stream(self) -> str:
        return f"{self.attempt:04d}.{self.host}"

    def _ship_traces(self) -> None:
        for path in sorted(self.folder.glob("trace-*.json.gz")):
            if path.name not in self._traces and self.clock() >= self._rests_until:
                try:
                    self.s3.write(f"traces/{path.name}", path.read_bytes())
                except S3UnavailableError as error:
                    self._rest(error)
                    return
                self._traces.add(path.name)

    def _rest(self, error: S3UnavailableError) -> None:
        pause = min(LONGEST_REST_S, FIRST_REST_S * 2**self._num_faults)
        self._rests_until, self._num_faults = self.clock() + pause, self._num_faults + 1
        if not self._has_said:
            self._has_said = True
            log.warning(CANNOT_SHIP, error.findings[0])
