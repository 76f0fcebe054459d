"""The `trainyard ` lines in a training job's log: their file, and their parser.

A line is `trainyard step=12 loss=2.3 ...` or `trainyard <event> step=12 ...`. Values with blanks are quoted.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

PREFIX = "trainyard "
_RANK = re.compile(r"^\[[^\]]*\]<stdout>: ?")
_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')


def without_rank(text: str) -> str:
    """Return a line without the prefix of mpirun.

    Worked: `[1,mpirank:0,algo-1]<stdout>: trainyard step=1` becomes `trainyard step=1`.
    """
    return _RANK.sub("", text, count=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of a job's log stream, with its time in epoch milliseconds."""

    job: str
    stream: str
    time_ms: int
    text: str

    def to_json(self) -> str:
        """Return the line as one row of training_log.jsonl, without the line feed."""
        row = {"time_ms": self.time_ms, "job": self.job, "stream": self.stream, "line": self.text}
        return json.dumps(row)

    @classmethod
    def from_json(cls, row: str) -> Self:
        """Return the line that `to_json` wrote."""
        data = json.loads(row)
        job, stream = sys.intern(data["job"]), sys.intern(data["stream"])
        return cls(job=job, stream=stream, time_ms=data["time_ms"], text=data["line"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Event of a line.

    Attributes:
        kind: `start`, `step`, `checkpoint`, `durable`, `alive`, `done`, ...
        time: epoch seconds.
        values: texts by key. Unreadable numbers count as absent.
    """

    kind: str
    time: float
    values: Mapping[str, str]

    @property
    def step(self) -> int | None:
        """Step of the event; None if it has none."""
        return self.integer("step")

    def integer(self, key: str) -> int | None:
        """Return the integer of a key; None if it is absent."""
        text = self.values.get(key, "")
        return int(text) if text.isdecimal() else None

    def number(self, key: str) -> float | None:
        """Return the number of a key; None if it is absent."""
        try:
            return float(self.values[key])
        except (KeyError, ValueError):
            return None

    def positions(self) -> tuple[int, int] | None:
        """Return the positions [first, end) of `samples=first:end`; None if they are absent."""
        first, _, end = self.values.get("samples", "").partition(":")
        return (int(first), int(end)) if first.isdecimal() and end.isdecimal() else None


def write_log(path: Path, lines: Iterable[LogLine]) -> int:
    """Write training_log.jsonl.gz: one JSON row per line, in their order. Return the number of lines."""
    count = 0
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for line in lines:
            file.write(line.to_json() + "\n")
            count += 1
    return count


def read_log(path: Path) -> Iterator[LogLine]:
    """Yield the lines of a file of `write_log`."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in file:
            yield LogLine.from_json(row)


def parse_event(line: LogLine) -> Event:
    """Return the event of a line."""
    rest = line.text.removeprefix(PREFIX)
    word = rest.partition(" ")[0]
    return Event(
        kind="step" if "=" in word else word,
        time=line.time_ms / 1000,
        values={key: value.strip('"') for key, value in _PAIR.findall(rest)},
    )
