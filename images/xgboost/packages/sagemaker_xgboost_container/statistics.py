"""Training statistics for the rules: a `trainyard-statistics` file of rounds, validations and trees.

`trainyard.rules.statistics_file` defines the format. The rules FeatureImportanceOverweight and TreeDepth read the file.
"""

from __future__ import annotations

import json
import math
import re
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT, VERSION = "trainyard-statistics", 1
_NODE = re.compile(r"^\t*(\d+):", re.MULTILINE)


class StatisticsFile:
    """Statistics file of one rank and one start of the job; every line is written immediately."""

    def __init__(
        self,
        folder: Path,
        *,
        rank: int,
        world_size: int,
        host: str,
        resumed_at: int,
        max_steps: int,
    ) -> None:
        """Create the file and write its header."""
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"rank-{rank:05d}.attempt-"
        attempt = 1 + max(
            (int(path.name[len(stem) : len(stem) + 4]) for path in folder.glob(f"{stem}*")),
            default=0,
        )
        path = folder / f"{stem}{attempt:04d}.part-0001.jsonl"
        self._file = path.open("w", encoding="utf-8", buffering=1)
        header = {"format": FORMAT, "version": VERSION, "rank": rank, "world_size": world_size}
        header |= {"attempt": attempt, "resumed_at": resumed_at, "time": time.time(), "part": 1}
        self._write({**header, "host": host, "max_steps": max_steps, "tensors": {}})

    def round(self, number: int, *, loss: float | None, seconds: float) -> None:
        """Record one boosting round, counted from 1; `seconds` is its duration."""
        self._record("step", number, loss=loss, step_seconds=seconds)

    def validation(self, number: int, *, loss: float) -> None:
        """Record the loss on the validation data."""
        self._record("validation", number, loss=loss)

    def trees(self, number: int, model: Any) -> None:
        """Record the importance of the model's features, and the size of the last round's trees."""
        counts = model.get_score(importance_type="weight")
        total = sum(counts.values()) or 1
        self._record(
            "trees",
            number,
            feature_importance={name: count / total for name, count in counts.items()},
            largest_node_id=largest_node_id(model),
        )

    def mark(self, number: int, mark: str) -> None:
        """Record the event `mark`, such as "done", at the round `number`."""
        self._record("mark", number, mark=mark)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _record(self, kind: str, number: int, **members: Any) -> None:
        given = {name: _json_value(value) for name, value in members.items() if value is not None}
        self._write({"kind": kind, "step": number, "time": time.time(), **given})

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line, allow_nan=False) + "\n")


def largest_node_id(model: Any) -> int:
    """Return the largest node id in the trees of the model's last round; the root of a tree is 0."""
    num_rounds = model.num_boosted_rounds()
    dump = "\n".join(model[num_rounds - 1 : num_rounds].get_dump())
    return max((int(number) for number in _NODE.findall(dump)), default=0)


def _json_value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
