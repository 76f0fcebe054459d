"""Upload of statistics to S3 while the job runs: one stream of objects per host, merged from its ranks' files.

The ranks write their lines to files on the host's own disk. A thread of the host's first rank reads new
lines and puts them as one object for all ranks. At first it puts an object every second. The interval grows
with the job's age, to one minute after an hour. An object never changes, and the names are increasing
numbers, so a reader lists the objects after the last one that it has read. For example:

    <prefix>/0001.algo-1/00000001.bundle      attempt 1 on host algo-1
    {"file": "rank-00000.attempt-0001.part-0001.jsonl", "bytes": 1234}    then that many bytes: whole lines
    {"file": "rank-00001.attempt-0001.part-0001.jsonl", "bytes": 980}     and so on

Urgent lines are put earlier. A line is urgent if it has NaN or infinity, or reports a failed checkpoint or
the end of the training. The first urgent lines are put half a second after the previous object. This half
second is doubled after each object that has urgent lines.

The prefix is not below the checkpoints, since the platform restores these to every host.
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
"""Pause between two objects, as a share of the job's age."""
POLL_S = 0.25
BUNDLE_BYTES = 4 * 2**20
READ_BYTES = 2**20  # of one file at once
PARTS_KEPT = 4
"""Number of each rank's shipped parts that stay on the disk, for readers on the host."""
LAST_WAIT_S = 5.0
"""Seconds that the last object waits for the host's other ranks to close their files."""
FIRST_REST_S, LONGEST_REST_S = 5.0, 300.0
"""Pause in seconds after a failed request, doubled from the first to the longest; the lines stay on the disk."""
STREAM = re.compile(r"(\d{4,})\.(.+)")
PART = re.compile(r"(rank-\d{5,}\.attempt-\d{4,})\.part-(\d{4,})\.jsonl")
NOT_FINITE = re.compile(rb'"(?:nan|-?inf)"')
ENDS = re.compile(rb'"mark":"(?:done|checkpoint_failed)"')
CANNOT_SHIP = (
    "STATISTICS DO NOT REACH S3 (%s): no rule is evaluated meanwhile; the run's report evaluates the job's log. "
    "Give the job's role s3:ListBucket and s3:PutObject on the prefix, and access to S3"
)
TAKEN = (
    "STATISTICS DO NOT REACH S3: attempt %d already exists in %s, because S3 did not answer when this attempt was "
    "numbered; no rule is evaluated meanwhile; the run's report evaluates the job's log"
)


def pause_s(age_s: float) -> float:
    """Return the seconds between two objects when the job is `age_s` seconds old.

    Examples: 1 s at 30 s, 10 s at 10 minutes, 60 s from an hour on.
    """
    return min(SLOWEST_S, max(FASTEST_S, age_s * AGE_SHARE))


def newest_attempt_in(s3: S3Prefix) -> int:
    """Return the highest attempt of any host in S3; 0 for none.

    An attempt is the number of a start of the training processes.

    Raises:
        S3UnavailableError: the request failed.
    """
    found = (STREAM.fullmatch(name) for name in s3.folders())
    return max((int(match[1]) for match in found if match), default=0)


@dataclass(slots=True, kw_only=True)
class Shipper:
    """Uploader of new statistics lines to S3, on a separate thread. An error never ends the training.

    Args:
        folder: folder of the ranks' files.
        s3: prefix of all attempts.
        attempt: number of this start of the training processes.
        host: name of this host, such as algo-1.
        num_ranks: number of ranks on this host; each writes `<name>.closed` at its end.
        knows_attempt: whether S3 answered when the attempt was numbered. If not, the upload begins when S3 answers. If
            S3 then already has this attempt of this host, nothing is uploaded.
        keeps_files: whether to keep uploaded files on the disk.
        clock: monotonic seconds.
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
    _has_warned: bool = False
    _ends: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._began_at = self._sent_at = self.clock()
        self._thread = threading.Thread(target=self._run, name="statistics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Put the remaining lines, and wait until this is done; S3's timeouts limit the wait."""
        self._ends.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def poll(self, *, is_last: bool = False) -> None:
        """Read new lines, and put them if an object is due; do nothing during the pause after a failed request.

        With `is_last`, put all lines now, even during that pause.
        """
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
            while not self._ends.wait(POLL_S):
                self.poll()
            waits_until = self.clock() + LAST_WAIT_S
            while self._num_closed() < self.num_ranks and self.clock() < waits_until:
                time.sleep(POLL_S / 5)
            self.poll(is_last=True)
        except Exception:  # the thread's boundary: the training continues
            log.exception("statistics are no longer uploaded to S3")

    def _may_ship(self) -> bool:
        """Return whether to upload: False if S3 already had this attempt of this host.

        If this is not known yet, S3 is queried; the result is False until S3 answers.
        """
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
        """Read the complete lines written since the last call. Return whether the files may have more lines.

        The parts of each rank's file are read in order.
        """
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
        """Queue the file's next complete lines for upload; return whether it may have more."""
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
        """Return whether to put the pending lines into S3: the pause since the last put is over, or they have 4 MiB.

        For urgent lines the pause is shorter. It doubles with each object that had urgent lines.
        """
        if not self._pending:
            return False
        pause = pause_s(now - self._began_at)
        if self._is_urgent:
            pause = min(pause, FASTEST_S / 2 * 2**self._num_urgent)
        return now - self._sent_at >= pause or sum(map(len, self._pending)) >= BUNDLE_BYTES

    def _ship(self, now: float, *, is_last: bool) -> None:
        """Put one object, or at the end all pending ones.

        If a put fails, the same object is put again later, with unchanged content. S3 may have stored it despite
        the error.
        """
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
        if not self._has_warned:
            self._has_warned = True
            log.warning(CANNOT_SHIP, error.findings[0])
