"""Lines of a training's log, each with its job, stream and time.

The module also writes and reads the file that stores the lines of all attempts.
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from trainyard.training_line import TrainingLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


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
class Event(TrainingLine):
    """Content of a line, with its time in epoch seconds."""

    time: float

    @classmethod
    def of(cls, line: LogLine) -> Self:
        """Return the event of a line; its kind is empty if the training script did not write the line."""
        content = TrainingLine.parse(line.text)
        time = line.time_ms / 1000
        if content is None:
            return cls(kind="", values={}, time=time)
        return cls(kind=content.kind, values=content.values, time=time)


def write_log(path: Path, lines: Iterable[LogLine]) -> int:
    """Write log lines to the file `path` (training_log.jsonl.gz), each as one row of JSON, in the given order.

    Return the number of log lines.
    """
    count = 0
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for line in lines:
            file.write(line.to_json() + "\n")
            count += 1
    return count


def read_log(path: Path) -> Iterator[LogLine]:
    """Yield the lines of a file that `write_log` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in file:
            yield LogLine.from_json(row)
