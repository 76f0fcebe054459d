"""Reader of statistics files that are still being written; yields the records of new content in order.

The module does no I/O. The caller, which reads a folder or S3, reports the sizes of the files, receives the
list of wanted pieces, and passes their bytes in:

    for piece in feed.wanted(sizes):
        feed.take(piece, read(piece.name, piece.start, piece.end))
    evaluation.feed(feed.records())

The files are those that `trainyard_watch` writes: `rank-00000.attempt-0001.part-0001.jsonl`. Each rank
writes one or more files per attempt, the attempt's parts. Other files in the folder are ignored. A poll is
one report of all sizes.

- An incomplete line is kept until the rest of it arrives.
- A part is read once the part before it has not grown for one poll, or once the part after it exists. The
  reader waits for this, because in a synchronized folder the last lines of a part may arrive after the next
  part.
- A missing part is skipped once a later part has not grown for two polls.
- An attempt is read once all content of earlier attempts has been read.

Each call of `wanted` requests a bounded number of bytes. While `is_behind` is true, call it again with the
same sizes.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections import deque
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from trainyard.errors import ContractError
from trainyard.rules.records import Record, Start
from trainyard.rules.statistics_file import StatisticsReader

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""Most bytes of one rank and attempt that one call of `wanted` requests; the next call requests the rest."""
MOST_AT_ONCE = 16 << 20
"""Most bytes of all ranks together that one call of `wanted` requests, in equal shares."""
_LOOKS_AT_GAP = 2
"""Polls without growth of a later part after which a missing part is skipped."""
_NAME = re.compile(r"(?:^|/)rank-(\d+)\.attempt-(\d+)\.part-(\d+)\.jsonl$")

Timed = tuple[float, Record]


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes `start` to `end`, exclusive, of a file."""

    name: str
    start: int
    end: int


class LiveFeed:
    """Reader of all statistics files of one job, with its position in each file.

    Args:
        since: creation time of the job, epoch seconds. A file with an older header is from an earlier job of
            the training, which used the same prefix. At an invalid line in such a file, a warning is logged,
            and the files of that rank and attempt are no longer read. An invalid line of the job itself is an
            error.
    """

    def __init__(self, *, since: float = 0.0) -> None:
        self._since = since
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._attempt = 0
        self.is_behind = False  # True if the last call of `wanted` reached its limit of bytes
        self.waits = False  # whether there is more, at once or with a later look

    def wanted(self, sizes: Mapping[str, int], *, is_final: bool = False) -> list[Piece]:
        """Return the pieces to read next, in the order in which to pass them to `take`.

        Args:
            sizes: sizes in bytes by file name, for all files of the folder at one time.
            is_final: whether writing has ended. Until then, a part of a rank's statistics is returned only
                after the part before it has stopped growing.
        """
        for name in sizes:
            if found := _NAME.search(name):
                rank, attempt, part = map(int, found.groups())
                stream = self._streams.setdefault((attempt, rank), _Stream(rank))
                if part not in stream.files and part > stream.passed_to:
                    stream.files[part] = _File(name, part)
        is_new = not self.is_behind
        self.is_behind = self.waits = False
        share = max(1, min(MOST_BYTES, MOST_AT_ONCE // max(1, len(self._streams))))
        pieces: list[Piece] = []
        held_after = math.inf
        for (attempt, _), stream in sorted(self._streams.items()):
            stream.look(sizes, is_new=is_new)
            if attempt <= held_after:
                pieces += stream.wanted(most=share, is_final=is_final)
                self.is_behind |= stream.is_behind
                if stream.is_behind or stream.waits:
                    self.waits, held_after = True, attempt
        return pieces

    def take(self, piece: Piece, data: bytes) -> None:
        """Process a wanted piece; it may have fewer bytes than requested.

        Raises:
            ContractError: a line of this job is invalid.
        """
        found = _NAME.search(piece.name)
        assert found is not None  # noqa: S101  # it was wanted
        rank, attempt, part = map(int, found.groups())
        stream = self._streams[attempt, rank]
        if stream.is_skipped:
            return
        try:
            stream.take(stream.files[part], piece.start, data, previous=self._last_attempt(rank))
        except ContractError as error:
            if not self._is_earlier(stream):
                raise
            stream.is_skipped = True
            log.warning("The statistics of an earlier job are left out from here on: %s", error)

    def earlier_records(self) -> list[Record]:
        """Return the new records of the training's earlier jobs, as `records` does; call it before `records`."""
        return self._drain(are_earlier=True)

    def records(self) -> list[Record]:
        """Return the records of the pieces since the last call, ordered by attempt, then by time."""
        return self._drain(are_earlier=False)

    def _is_earlier(self, stream: _Stream) -> bool:
        return stream.started_at is not None and stream.started_at < self._since

    def _drain(self, *, are_earlier: bool) -> list[Record]:
        ready = []
        for stream in self._streams.values():
            while stream.ready and self._is_earlier(stream) is are_earlier:
                attempt, timed = stream.ready.popleft()
                ready.append((attempt, stream.rank, timed))
        ready.sort(key=itemgetter(0))
        records: list[Record] = []
        for attempt, same in groupby(ready, key=itemgetter(0)):
            if attempt < self._attempt:
                log.warning(
                    "Statistics of attempt %d are ignored, because they arrived after those of attempt %d",
                    attempt,
                    self._attempt,
                )
                continue
            self._attempt = attempt
            by_rank: dict[int, list[Timed]] = {}
            for _, rank, timed in same:
                by_rank.setdefault(rank, []).append(timed)
            records += [record for _, record in merge(*by_rank.values(), key=itemgetter(0))]
        return records

    def _last_attempt(self, rank: int) -> int:
        numbers = (each.attempt for each in self._streams.values() if each.rank == rank)
        return max(numbers, default=0)


@dataclass(slots=True)
class _File:
    """One statistics file (a part of an attempt): its read position and its incomplete last line."""

    name: str
    part: int
    offset: int = 0
    rest: bytes = b""
    header: tuple[int, bytes] = (0, b"")
    """Length and hash of the header; 0 and empty until it was read."""
    size: int = -1
    """Size in bytes at the last poll; -1 before the first."""
    stood: int = 0
    """Number of consecutive polls without growth."""
    is_doubted: bool = False
    """True if a poll found the file missing or shorter: it may have been replaced."""
    settled: int = -1
    """The size at which a shorter file was verified to be the same file; -1 if it never was."""
    reader: StatisticsReader | None = None
    """Reader with the header's tensor names; None before the first line, and after the next part has begun."""

    def look(self, size: int, *, is_new: bool) -> None:
        """Store the file's size at a poll, and count the consecutive polls without growth.

        `is_new` is False if the same poll is passed again. The count then does not increase.
        """
        self.is_doubted |= size < self.offset and size != self.settled
        self.stood = self.stood + is_new if size == self.size else 0
        self.size = size

    def wanted(self, most: int) -> Piece | None:
        """Return the next piece to read: the file's beginning if its header must be read again, otherwise new bytes."""
        has_left = self.reader is None and 0 < self.offset < self.size
        self.is_doubted |= has_left and self.header[0] > 0  # its reader needs the header again
        if self.is_doubted and self.size > 0:
            return Piece(self.name, 0, min(self.size, max(MOST_BYTES, self.header[0])))
        if self.size > self.offset:
            return Piece(self.name, self.offset, min(self.size, self.offset + most))
        return None

    def leave(self) -> None:
        """Drop the state of a part that was read to its end, except the header that identifies the file."""
        if self.size <= self.offset and not self.is_doubted:
            self.reader = None

    def is_same(self, data: bytes) -> bool:
        """Return whether `data` begins with the header of the file that was read."""
        length, seen = self.header
        return length == 0 or _hash(data[:length]) == seen

    def read(self, line: bytes) -> Record:
        """Return the record of a line.

        Raises:
            ContractError: the line is invalid.
        """
        if self.reader is None:
            self.reader = StatisticsReader(self.name)
        return self.reader.read(line.decode("utf-8", errors="replace") + "\n")


@dataclass(slots=True)
class _Stream:
    """The statistics files (parts) of one rank and attempt."""

    rank: int
    files: dict[int, _File] = field(default_factory=dict)
    attempt: int = 0
    """Attempt number in the records. It continues if the writer's numbers start again at 1."""
    started_at: float | None = None
    is_skipped: bool = False
    is_behind: bool = False
    """True if the last call of `wanted` reached its limit of bytes before the end of the files."""
    waits: bool = False
    """True if a part has content, but its reading has not begun."""
    passed_to: int = 0
    """The part after the last skipped gap; missing parts before it are no longer read."""
    ready: deque[tuple[int, Timed]] = field(default_factory=deque)
    _now: float = 0.0

    def look(self, sizes: Mapping[str, int], *, is_new: bool) -> None:
        """Store the sizes of all parts at a poll; `is_new` is False if the same poll is passed again."""
        for file in self.files.values():
            file.look(sizes.get(file.name, -1), is_new=is_new)

    def wanted(self, *, most: int, is_final: bool) -> list[Piece]:
        """Return the next pieces to read, in the order of the parts, with about `most` bytes in total.

        A part waits for its predecessor. If `is_final`, writing has ended and no part waits.
        """
        self.is_behind = self.waits = False
        pieces: list[Piece] = []
        parts = [] if self.is_skipped else sorted(self.files)
        for number, part in enumerate(parts):
            if not self._is_open(parts, number, is_final=is_final):
                self.waits = any(self.files[each].size > 0 for each in parts[number:])
                break
            piece = self.files[part].wanted(most)
            if number:
                self.files[parts[number - 1]].leave()
            if piece is None:
                continue
            if most <= 0:
                self.is_behind = True
                break
            pieces.append(piece)
            most -= piece.end - piece.start
            if piece.end < self.files[part].size:
                self.is_behind = True
                break
        return pieces

    def _is_open(self, parts: list[int], number: int, *, is_final: bool) -> bool:
        """Return whether a part may be read, given that all parts before it were read."""
        before = parts[number - 1] if number else 0
        is_next = parts[number] == before + 1
        if not is_next and not self._passes(before, parts[number:], is_final=is_final):
            return False
        has_later = number + 1 < len(parts)  # then the one before was finished a whole part ago
        return before == 0 or is_final or has_later or self.files[before].stood > 0

    def _passes(self, before: int, after: list[int], *, is_final: bool) -> bool:
        """Return whether to skip the missing parts between part `before` and part `after[0]`."""
        if after[0] <= self.passed_to:
            return True
        if not is_final and all(self.files[each].stood < _LOOKS_AT_GAP for each in after):
            return False
        log.warning(
            "Statistics of rank %d continue with %s: the content after part %d is missing",
            self.rank,
            self.files[after[0]].name,
            before,
        )
        self.passed_to = after[0]
        return True

    def take(self, file: _File, start: int, data: bytes, *, previous: int) -> None:
        if file.is_doubted:
            data = self._settle_doubt(file, data)
        elif start != file.offset:
            return  # passed in twice
        file.offset += len(data)
        *lines, file.rest = (file.rest + data).split(b"\n")
        for line in lines:
            self._read(file, line, previous=previous)

    def _settle_doubt(self, file: _File, data: bytes) -> bytes:
        """Return the bytes of `data` that were not read yet, for a file that is read again from its beginning.

        A file is read again (`is_doubted`) if it may have been replaced, or if its header is needed again. `data`
        begins at the file's first byte. If its header differs from the earlier one, the file was replaced, and all
        bytes are new.
        """
        file.is_doubted, file.settled = False, file.size
        if file.is_same(data):
            if file.reader is None and file.header[0]:
                file.reader = StatisticsReader(f"{file.name}, after byte {file.offset}")
                file.read(data[: file.header[0] - 1])
            return data[file.offset :]
        file.offset, file.rest, file.header, file.reader = 0, b"", (0, b""), None
        if file.part == 1:
            self.files, self.passed_to = {1: file}, 0
        return data

    def _read(self, file: _File, line: bytes, *, previous: int) -> None:
        record = file.read(line)
        if not file.header[0]:
            file.header = len(line) + 1, _hash(line + b"\n")
            if file.part > 1 and self.started_at is not None:
                return  # it continues the attempt: no new start
        if isinstance(record, Start):
            self.attempt = max(record.attempt, previous + 1)
            self.started_at = record.time
            record = replace(record, attempt=self.attempt)
        self._now = self._now if record.time is None else max(self._now, record.time)
        self.ready.append((self.attempt, (self._now, record)))


def _hash(header: bytes) -> bytes:
    return hashlib.blake2b(header, digest_size=16).digest()
