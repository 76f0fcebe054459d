"""Checkpoints of a boosted model: one file per round, `xgboost-checkpoint.<round>`; the newest five are kept."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

NAME = "xgboost-checkpoint"
NUM_KEPT = 5
_FILE = re.compile(rf"{NAME}\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The checkpoints in one folder."""

    folder: Path

    def newest(self) -> tuple[Path | None, int]:
        """Return (newest checkpoint, number of rounds in it), or (None, 0) if there is none."""
        rounds = self._rounds()
        if not rounds:
            return None, 0
        return self.folder / f"{NAME}.{rounds[-1]}", rounds[-1] + 1

    def save(self, model: Any, round_number: int) -> None:
        """Save the model after this round (counted from 0), and remove all but the newest `NUM_KEPT` checkpoints."""
        self.folder.mkdir(parents=True, exist_ok=True)
        save_model(model, self.folder / f"{NAME}.{round_number}")
        for old in self._rounds()[:-NUM_KEPT]:
            (self.folder / f"{NAME}.{old}").unlink(missing_ok=True)

    def _rounds(self) -> list[int]:
        if not self.folder.exists():
            return []
        found = (_FILE.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)


def save_model(model: Any, path: Path) -> None:
    """Write a model in XGBoost's UBJSON format. Readers never see an incomplete file."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(model.save_raw("ubj"))
    beside.replace(path)
