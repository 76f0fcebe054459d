"""Metrics of a training job: regular expressions of MetricDefinitions, applied to every log line."""

from __future__ import annotations

import json
import math
import re
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

FILE_NAME = "metrics.jsonl"
"""File in a job's folder with a JSON object per value: epoch milliseconds `t`, `name` and `value`."""


class MetricScraper:
    """Collects the metrics of one job. Safe to feed from several threads."""

    def __init__(self, definitions: Sequence[Mapping[str, str]], folder: Path) -> None:
        """Compile the definitions. Values are appended to the metrics file in the job's folder.

        The method `final` also returns metrics that an earlier runner of the job wrote to this file.
        """
        self._patterns = [(each["Name"], _compile(each["Regex"])) for each in definitions]
        self._path = folder / FILE_NAME
        self._last = {each["name"]: (each["t"], each["value"]) for each in _records(folder)}
        self._lock = threading.Lock()

    def line(self, time_ms: int, text: str) -> None:
        """Find metrics in one line; `time_ms` is in epoch milliseconds."""
        found = []
        for name, pattern in self._patterns:
            match = pattern.search(text) if pattern is not None else None
            value = _number(match) if match is not None else None
            if value is not None:
                found.append((name, value))
        if not found:
            return
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            for name, value in found:
                self._last[name] = (time_ms, value)
                file.write(json.dumps({"t": time_ms, "name": name, "value": value}) + "\n")

    def final(self) -> list[dict[str, Any]]:
        """Return FinalMetricDataList: the last value of each metric, with its time in epoch seconds."""
        with self._lock:
            return [
                {"MetricName": name, "Value": value, "Timestamp": time_ms / 1000}
                for name, (time_ms, value) in self._last.items()
            ]


def read_curve(folder: Path, metric: str) -> tuple[float, ...]:
    """Return the values of a metric in a job's metrics file, in order; empty without the file."""
    return tuple(each["value"] for each in _records(folder) if each["name"] == metric)


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of the metrics file. An incomplete line is skipped."""
    try:
        data = (folder / FILE_NAME).read_bytes()
    except FileNotFoundError:
        return
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            return
        try:
            yield json.loads(line)
        except ValueError:  # The disk became full within the line.
            continue


def _compile(regex: str) -> re.Pattern[str] | None:
    try:
        return re.compile(regex)
    except re.error:
        return None  # The service accepts any text; a metric with an invalid expression never has a value.


def _number(match: re.Match[str]) -> float | None:
    try:
        value = float(match[1] if match.re.groups else match[0])
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
