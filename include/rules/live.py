"""Statistics that are still being written: what is new in the files becomes records, in order.

Nothing here reads a file. Whoever holds the files, in a folder or in S3, says how long they are, is told which pieces
are wanted, and hands these in:

    for piece in feed.wanted(sizes):
        feed.take(piece, read(piece.name, piece.start, piece.end))
    evaluation.feed(feed.records())

The files are those of the emitter, `rank-00000.attempt-0001.part-0001.jsonl`, one after the other for each rank and
attempt; whatever else lies beside them is not looked at. A half line waits for its rest. The next part is begun once
the one before it has stood still for a look: where files arrive by a synchronisation, its last lines may come after
the next part is there. An attempt is begun once no earlier one brings anything new.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from include.rules.records import Record, Start
from include.rules.statistics_file import StatisticsReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""Of one file in one look; the rest is wanted with the next."""
_NAME = re.compile(r"(?:^|/)rank-(\d+)\.attempt-(\d+)\.part-(\d+)\.jsonl$")

Timed = tuple[float, Record]


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes `start` to `end`, exclusive, of a file."""

    name: str
    start: int
    end: int


class LiveFeed:
    """The reading positions in all files of one job's statistics.

    Args:
        since: files whose header is older (epoch seconds) are an earlier job's, left in the checkpoint folder that both
            share; they are passed over.
    """

    def __init__(self, *, since: float = 0.0) -> None:
        self._since = since
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._attempt = 0
        self.is_behind = False  # whether files have more than the pieces wanted last

    def wanted(self, sizes: Mapping[str, int], *, is_final: bool = False) -> list[Piece]:
        """Return what to read next, in the order in which to hand it in.

        Args:
            sizes: bytes of each file by its name, all files of the folder in one look.
            is_final: nothing is written any more: no part waits for the one before it to stand still.
        """
        for name in sizes:
            if found := _NAME.search(name):
                rank, attempt, part = map(int, found.groups())
                stream = self._streams.setdefault((attempt, rank), _Stream(rank))
                stream.files.setdefault(part, _File(name, part))
        self.is_behind = False
        pieces = []
        for _, stream in sorted(self._streams.items()):
            for piece in stream.wanted(sizes, is_final=is_final):
                end = min(piece.end, piece.start + MOST_BYTES)
                pieces.append(replace(piece, end=end))
                if end < piece.end:
                    self.is_behind = True
                    break
        return pieces

    def take(self, piece: Piece, data: bytes) -> None:
        """Take a wanted piece; fewer bytes than wanted are no fault.

        Raises:
            ContractError: a line is wrong.
        """
        found = _NAME.search(piece.name)
        assert found is not None  # noqa: S101  # it was wanted
        rank, attempt, part = map(int, found.groups())
        stream = self._streams[attempt, rank]
        stream.take(stream.files[part], piece.start, data, previous=self._last_attempt(rank))
        stream.is_skipped = stream.started_at is not None and stream.started_at < self._since

    def records(self) -> list[Record]:
        """Return the records of what was taken since the last call: attempt by attempt, within one by time."""
        ready = []
        for stream in self._streams.values():
            while stream.ready:
                attempt, timed = stream.ready.popleft()
                if not stream.is_skipped:
                    ready.append((attempt, stream.rank, timed))
        ready.sort(key=itemgetter(0))
        records: list[Record] = []
        for attempt, same in groupby(ready, key=itemgetter(0)):
            if attempt < self._attempt:
                log.warning("statistics of attempt %d come after %d", attempt, self._attempt)
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
    """One part: how far it was read, and what is left of a line."""

    name: str
    part: int
    offset: int = 0
    rest: bytes = b""
    header: bytes = b""
    size: int = -1
    """At the last look."""
    is_doubted: bool = False
    """It was away, or shorter: perhaps it is another file of the same name now."""
    settled: int = -1
    """The size at which a shorter file was found to be the same one."""
    reader: StatisticsReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = StatisticsReader(self.name)


@dataclass(slots=True)
class _Stream:
    """The parts of one rank and attempt."""

    rank: int
    files: dict[int, _File] = field(default_factory=dict)
    attempt: int = 0
    """As it is told to rules: names that begin anew after a restart are counted on."""
    started_at: float | None = None
    is_skipped: bool = False
    ready: deque[tuple[int, Timed]] = field(default_factory=deque)
    _now: float = 0.0

    def wanted(self, sizes: Mapping[str, int], *, is_final: bool) -> Iterator[Piece]:
        parts = sorted(self.files)
        is_open = parts[0] == 1  # a part that is missing is waited for
        for number, part in enumerate(parts):
            file = self.files[part]
            size = sizes.get(file.name, -1)
            file.is_doubted |= size < file.offset and size != file.settled
            stood_still = size == file.size
            file.size = size
            if not is_open or self.is_skipped:
                continue
            if file.is_doubted and size > 0:
                yield Piece(file.name, 0, size)
            elif size > file.offset:
                yield Piece(file.name, file.offset, size)
            follows = number + 1 < len(parts) and parts[number + 1] == part + 1
            is_open = follows and (is_final or stood_still) and size <= max(0, file.offset)
            is_open |= follows and is_final

    def take(self, file: _File, start: int, data: bytes, *, previous: int) -> None:
        if file.is_doubted:
            data = self._settle_doubt(file, data)
        elif start != file.offset:
            return  # handed in twice
        file.offset += len(data)
        *lines, file.rest = (file.rest + data).split(b"\n")
        for line in lines:
            self._read(file, line, previous=previous)

    def _settle_doubt(self, file: _File, data: bytes) -> bytes:
        """Return what is new of a file that was away: all of it where it begins otherwise than before."""
        file.is_doubted, file.settled = False, file.size
        if data.startswith(file.header):
            return data[file.offset :]
        file.offset, file.rest, file.header = 0, b"", b""
        file.reader = StatisticsReader(file.name)
        if file.part == 1:
            self.files = {1: file}
        return data

    def _read(self, file: _File, line: bytes, *, previous: int) -> None:
        record = file.reader.read(line.decode("utf-8", errors="replace") + "\n")
        if not file.header:
            file.header = line + b"\n"
            if file.part > 1:
                return  # it continues the attempt: no new start
        if isinstance(record, Start):
            self.attempt = max(record.attempt, previous + 1)
            self.started_at = record.time
            record = replace(record, attempt=self.attempt)
        self._now = self._now if record.time is None else max(self._now, record.time)
        self.ready.append((self.attempt, (self._now, record)))
