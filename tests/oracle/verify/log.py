"""Training log of the recount: the starts of the processes, in the order of time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby, pairwise, takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_QUOTED = re.compile(r'"(\\.|[^"\\])*"')
_BEFORE_START = frozenset({"resume", "setup"})  # what the next start's processes print first
_NEEDED = ("step", "global_batch_size", "num_samples", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """One line: its kind (the word after `trainyard`, by default `step`) and its pairs."""

    time: float
    kind: str
    pairs: Mapping[str, str]

    def whole(self, key: str) -> int | None:
        """Return a whole number; None if the line has no number of this name."""
        return int(self.pairs[key]) if re.fullmatch(r"\d+", self.pairs.get(key, "")) else None

    @property
    def order(self) -> tuple[float, bool, int]:
        """Sort key: by time; within a millisecond a start comes first, then lower steps."""
        return self.time, self.kind != "start", self.whole("step") or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A `start` line, and the lines of its stream up to the next one."""

    job: str
    stream: str
    start: EventLine
    lines: tuple[EventLine, ...]

    @property
    def resumed_at(self) -> int:
        """Steps that were complete before the start."""
        return int(self.start.pairs["step"])

    @property
    def batch(self) -> int:
        """Samples of a step."""
        return int(self.start.pairs["global_batch_size"])

    @property
    def last_step(self) -> int:
        """The highest step in the lines."""
        reached = (line.whole("step") or 0 for line in self.lines if line.kind not in _BEFORE_START)
        return max(self.resumed_at, *reached, 0)

    @property
    def last_time(self) -> float:
        """Time of the last line."""
        return max(
            self.start.time, *(e.time for e in self.lines if e.kind not in _BEFORE_START), 0.0
        )

    def of_kind(self, *kinds: str) -> list[EventLine]:
        """Return the lines of these kinds."""
        return [line for line in self.lines if line.kind in kinds]

    def claims(self) -> Iterator[tuple[EventLine, int, int]]:
        """Yield the step lines that have positions: [first, end)."""
        for line in self.of_kind("step"):
            match = re.fullmatch(r"(\d+):(\d+)", line.pairs.get("samples", ""))
            if match and line.whole("step") is not None:
                yield line, int(match[1]), int(match[2])


def read_log(rows: Iterable[Mapping[str, Any]]) -> list[Begun]:
    """Return every start of the processes with its lines; the rows may come in any order.

    A stream without a start belongs to instances that ended before one.
    """
    found: list[Begun] = []
    for job, stream, lines in _streams(rows):
        at = [n for n, line in enumerate(lines) if _is_start(line)]
        for begin, end in pairwise([*at, len(lines)]):
            rest = tuple(line for line in lines[begin + 1 : end] if line.kind != "start")
            found.append(Begun(job=job, stream=stream, start=lines[begin], lines=rest))
    return sorted(found, key=lambda each: each.start.time)


def steps_before_start(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of step lines before a stream's first start, by stream; streams with none are left out."""
    counts = {}
    for _, stream, lines in _streams(rows):
        before = takewhile(lambda line: not _is_start(line), lines)
        counts[stream] = sum(line.kind == "step" for line in before)
    return {stream: count for stream, count in counts.items() if count}


def _streams(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, list[EventLine]]]:
    """Yield each stream with its lines in the order of time."""
    ordered = sorted(rows, key=lambda row: (str(row["job"]), str(row["stream"])))
    for (job, stream), group in groupby(ordered, key=lambda row: (row["job"], row["stream"])):
        yield job, stream, sorted(map(_event_line, group), key=lambda line: line.order)


def _is_start(line: EventLine) -> bool:
    return line.kind == "start" and all(line.whole(key) is not None for key in _NEEDED)


def _event_line(row: Mapping[str, Any]) -> EventLine:
    words = _QUOTED.sub('""', str(row["line"])).split()[1:]
    pairs = dict(word.split("=", 1) for word in words if "=" in word)
    kind = words[0] if words and "=" not in words[0] else "step"
    return EventLine(time=int(row["time_ms"]) / 1000, kind=kind, pairs=pairs)
