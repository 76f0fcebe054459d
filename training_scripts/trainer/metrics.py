"""Metrics: one fixed line format on stdout, and JSON lines in a file."""

from __future__ import annotations

import json
import math
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = {
    "loss": ".6f", "validation_loss": ".6f", "gradient_norm": ".6f", "learning_rate": ".6e",
    "tokens_per_second": ".1f", "samples_per_second": ".1f", "eta_seconds": ".1f", "seconds": ".1f",
    "validation_accuracy": ".6f",
}  # fmt: skip
LINE_KEYS = {
    "step": ("step", "epoch", "loss", "learning_rate", "tokens_per_second", "samples_per_second",
             "gradient_norm", "eta_seconds", "max_steps"),
    "eval": ("step", "validation_loss", "validation_tokens", "validation_samples",
             "validation_accuracy"),
    "resume": ("step", "checkpoint"),
    "done": ("step", "validation_loss", "seconds"),
}  # fmt: skip


class MetricsWriter:
    """Writes each event once, from rank 0; on other ranks nothing.

    The history (JSON lines) is part of every checkpoint, so that it covers the whole logical run.
    """

    def __init__(self, folder: Path, *, enabled: bool, stream: TextIO | None = None) -> None:
        self._enabled = enabled
        self._stream = stream or sys.stdout
        self._folder = folder
        if enabled:
            folder.mkdir(parents=True, exist_ok=True)
            self._path.write_bytes(b"")

    @property
    def _path(self) -> Path:
        return self._folder / "metrics.jsonl"

    def restore(self, history: bytes) -> None:
        """Go on after the events that an earlier attempt of this run had written."""
        if self._enabled:
            self._path.write_bytes(history)

    def history(self) -> bytes:
        """Return every event so far as JSON lines."""
        return self._path.read_bytes() if self._enabled else b""

    def write(self, event: str, **values: Any) -> None:
        """Record one event; kinds named in LINE_KEYS are printed too."""
        if not self._enabled:
            return
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(
                json.dumps({"event": event, "time": time.time(), **_finite(values)}) + "\n"
            )
        if event in LINE_KEYS:
            self._stream.write(format_line(event, values) + "\n")
            self._stream.flush()

    def write_summary(self, **values: Any) -> None:
        """Write summary.json beside the history."""
        if self._enabled:
            text = json.dumps(_finite(values), indent=2)
            (self._folder / "summary.json").write_text(text + "\n", encoding="utf-8")


def format_line(event: str, values: dict[str, Any]) -> str:
    """Return an event as a log line, e.g. `trainyard done step=9 validation_loss=2.345678 ...`."""
    pairs = [
        f"{key}={values[key]:{FORMATS.get(key, '')}}"
        for key in LINE_KEYS[event]
        if values.get(key) is not None
    ]
    head = ["trainyard"] if event == "step" else ["trainyard", event]
    return " ".join(head + pairs)


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` with null for what JSON cannot say."""
    return {
        key: None if isinstance(v, float) and not math.isfinite(v) else v
        for key, v in values.items()
    }
