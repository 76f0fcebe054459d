"""`TrainingLine`: a line of a training's log that the training script wrote. Standard library only.

`trainyard key=value ...` is a step, `trainyard <event> key=value ...` any other event. A value with blanks is a JSON
string. training_scripts/README.md describes the kinds of lines; `trainyard_watch.metrics.format_line` writes them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "trainyard "
_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')
_RANK = re.compile(r"^\[[^\]]*\]<stdout>: ?")
_ANYWHERE = re.compile(r"(?:^|\s)trainyard [a-z_]+[ =]")


def without_rank(text: str) -> str:
    """Return a line without the prefix of mpirun.

    Worked: `[1,mpirank:0,algo-1]<stdout>: trainyard step=1` becomes `trainyard step=1`.
    """
    return _RANK.sub("", text, count=1)


def is_heartbeat(message: str) -> bool:
    """Return whether a log line contains a line of the training script, at its start or after a launcher's prefix."""
    return _ANYWHERE.search(message) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLine:
    """Content of one line.

    Attributes:
        kind: `start`, `step`, `checkpoint`, `durable`, `alive`, `done`, ...
        values: texts by key. The last value of a truncated line may be cut.
    """

    kind: str
    values: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the content of a line; None if it does not start with `trainyard `.

        A line with the prefix of mpirun is not recognized: remove the prefix with `without_rank` first.
        """
        if not text.startswith(PREFIX):
            return None
        rest = text.removeprefix(PREFIX)
        word = rest.partition(" ")[0]
        values = {key: _decoded(value) for key, value in _PAIR.findall(rest)}
        return cls(kind="step" if "=" in word else word, values=values)

    @property
    def step(self) -> int | None:
        """Step of the event; None if the line has no step."""
        return self.integer("step")

    def integer(self, key: str) -> int | None:
        """Return the integer of a key; None if the key is absent, or if its text is not a sequence of digits."""
        text = self.values.get(key, "")
        return int(text) if text.isdecimal() else None

    def number(self, key: str) -> float | None:
        """Return the number of a key; None if the key is absent or its text is not a number."""
        try:
            return float(self.values[key])
        except (KeyError, ValueError):
            return None

    def positions(self) -> tuple[int, int] | None:
        """Return the line's range of positions in the run's sample order; None if the line has no such range.

        The line gives the range as `samples=first:end`. The result is `(first, end)`; `end` is not included.
        """
        first, _, end = self.values.get("samples", "").partition(":")
        return (int(first), int(end)) if first.isdecimal() and end.isdecimal() else None


def _decoded(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return str(json.loads(value))
    except ValueError:  # truncated
        return value.strip('"')
