"""Metrics of a training job: regular expressions of MetricDefinitions, applied to every log line."""

from __future__ import annotations

import json
import math
import re
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class MetricScraper:
    """Collects the metrics of one job. Safe to feed from several threads."""

    def __init__(self, definitions: Sequence[Mapping[str, str]], path: Path) -> None:
        """Compile the definitions. Values are appended to `path` as JSON lines.

        Values that an earlier runner of the job wrote there count, too.
        """
        self._patterns = [(each["Name"], _compile(each["Regex"])) for each in definitions]
        self._path = path
        self._last = _last_values(path)
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


def _last_values(path: Path) -> dict[str, tuple[int, float]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return {each["name"]: (each["t"], each["value"]) for each in found}


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
