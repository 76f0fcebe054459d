"""training_log.jsonl.gz: the `trainyard ` lines of all attempts, one JSON row each."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from trainyard.runs.continuity.log_lines import LogLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


def write_log(path: Path, lines: Iterable[LogLine]) -> int:
    """Write the lines in their order and return their number."""
    count = 0
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for line in lines:
            file.write(line.to_json() + "\n")
            count += 1
    return count


def read_log(path: Path) -> Iterator[LogLine]:
    """Yield the lines that `write_log` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in file:
            yield LogLine.from_json(row)
