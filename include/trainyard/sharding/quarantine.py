"""Bad rows of a source: their number, samples with position and reason, and the check of their share."""

from __future__ import annotations

import json
from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING

from trainyard.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAX_SAMPLES = 1_000
_ID_FAULTS = ("no tokens", "outside the vocabulary")
_MAX_CONTENT = 500
_MAX_SHOWN = 3


class BadRows:
    """The bad rows of one sharding run."""

    def __init__(self, max_fraction: float) -> None:
        self._max_fraction = max_fraction
        self._samples: list[dict[str, object]] = []
        self._reasons: Counter[str] = Counter()
        self.count = 0
        self._lock = Lock()  # bad rows are found by the reading and the encoding thread

    def add(self, file: str, line: int, reason: str, content: bytes | str) -> None:
        """Count one bad row. The first 1,000 are kept as samples, each of at most 500 characters."""
        text = content if isinstance(content, str) else content.decode(errors="backslashreplace")
        sample = {"file": file, "line": line, "reason": reason, "content": text[:_MAX_CONTENT]}
        with self._lock:
            self.count += 1
            self._reasons[reason.split(":", 1)[0]] += 1
            if len(self._samples) < MAX_SAMPLES:
                self._samples.append(sample)

    def restore(self, lines: Iterable[bytes]) -> None:
        """Add another process's samples, given as JSON lines. The caller adds that process's `count`."""
        for line in lines:
            sample = json.loads(line)
            self._reasons[str(sample["reason"]).split(":", 1)[0]] += 1
            if len(self._samples) < MAX_SAMPLES:
                self._samples.append(sample)

    def clear(self) -> None:
        """Reset all counts and samples, before the source is read again."""
        self._samples.clear()
        self._reasons.clear()
        self.count = 0

    def check(self, num_good: int) -> float:
        """Return the share of bad rows, 0 to 1.

        Raises:
            DataError: the share is above the limit.
        """
        fraction = self.count / max(1, self.count + num_good)
        if fraction > self._max_fraction:
            shown = "\n".join(
                f"{each['file']}:{each['line']}: {each['reason']}"
                for each in self._samples[:_MAX_SHOWN]
            )
            reasons = ", ".join(
                f"{count} x {reason}" for reason, count in self._reasons.most_common()
            )
            raise DataError(
                "too many rows of the source cannot be read",
                job_name="sharding",
                where=f"{self.count} of {self.count + num_good} rows ({reasons})",
                got=shown,
                allowed=f"at most {self._max_fraction:.4g} of the rows (max_bad_row_fraction)",
                next_step=f"correct the source, {self._remedy()}, or raise max_bad_row_fraction to skip such rows",
            )
        return fraction

    def _remedy(self) -> str:
        if any(reason in _ID_FAULTS for reason in self._reasons):
            return "set the tokenizer that created the ids, or its vocab_size and eos_token_id"
        return (
            "set csv_options if a csv file has another encoding, delimiter or mark of missing values "
            "(encoding, sep, na_values)"
        )

    def write(self, path: Path) -> bool:
        """Write the samples as JSON lines and return True. Without samples write nothing and return False."""
        lines = [json.dumps(sample, ensure_ascii=False) for sample in self._samples]
        if lines:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines) + "\n")
        return bool(lines)
