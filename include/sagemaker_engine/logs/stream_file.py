"""One log stream: an append-only file of JSON lines, read by byte offset in both directions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCK_BYTES = 1 << 20
MAX_PAGE_BYTES = 1 << 20
EVENT_OVERHEAD_BYTES = 26
"""Bytes that CloudWatch Logs counts per event in addition to its message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One line: its time in epoch milliseconds, its text, and its byte offsets in the file."""

    timestamp: int
    message: str
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """Return the size of this event in bytes, for the size limit of one page of events.

        The size is that of the text in UTF-8 plus `EVENT_OVERHEAD_BYTES`.
        """
        return len(self.message.encode()) + EVENT_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """Half-open range of epoch milliseconds, from `start` to before `end`; None means no limit."""

    start: int | None = None
    end: int | None = None

    def __contains__(self, timestamp: int) -> bool:
        """Return whether the time is in the range."""
        after_start = self.start is None or timestamp >= self.start
        return after_start and (self.end is None or timestamp < self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events in file order. The previous page ends at byte `start` of the file, the next page begins at byte `end`."""

    events: list[LogEvent]
    start: int
    end: int


def read_forward(path: Path, *, offset: int, limit: int, times: TimeRange) -> EventPage:
    """Return the events from byte `offset`, up to `limit` events and 1 MiB."""
    events: list[LogEvent] = []
    size, end = 0, offset
    with path.open("rb") as file:
        for event in iterate(file, offset):
            size += event.size_bytes
            if len(events) == limit or size > MAX_PAGE_BYTES:
                break
            end = event.end
            if event.timestamp in times:
                events.append(event)
    return EventPage(events=events, start=events[0].start if events else offset, end=end)


def read_backward(path: Path, *, offset: int | None, limit: int, times: TimeRange) -> EventPage:
    """Return up to `limit` events before byte `offset` (None: the end of the file)."""
    with path.open("rb") as file:
        end = complete_size(file) if offset is None else offset
        start, events = end, list[LogEvent]()
        while start > 0 and not events:
            block_start = _line_start(file, start)
            block = [event for event in iterate(file, block_start) if event.end <= start]
            events = [event for event in block if event.timestamp in times][-limit:]
            start = events[0].start if events else block_start
    return EventPage(events=events, start=start, end=end)


def iterate(file: BinaryIO, offset: int) -> Iterator[LogEvent]:
    """Yield the events from byte `offset`, without a last line that is not complete yet."""
    file.seek(offset)
    for line in file:
        if not line.endswith(b"\n"):
            return
        start, offset = offset, offset + len(line)
        try:
            record = json.loads(line)
        except ValueError:  # The writer was killed within the line.
            continue
        yield LogEvent(timestamp=record["t"], message=record["m"], start=start, end=offset)


def complete_size(file: BinaryIO) -> int:
    """Return the number of bytes up to the end of the last complete line."""
    size = file.seek(0, 2)
    while size > 0:
        start = max(0, size - BLOCK_BYTES)
        file.seek(start)
        newline = file.read(size - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        size = start
    return 0


def _line_start(file: BinaryIO, end: int) -> int:
    """Return the byte offset of the first line that starts in the block of bytes before `end`.

    If no line starts in the block, the block is extended toward the start of the file. If it reaches the start
    of the file, the result is 0, because the first line starts there.
    """
    start = max(0, end - BLOCK_BYTES)
    while start > 0:
        file.seek(start)
        newline = file.read(end - start).find(b"\n")
        if 0 <= newline < end - start - 1:
            return start + newline + 1
        start = max(0, start - BLOCK_BYTES)  # The line is longer than the block.
    return 0
