"""The Trainer's checkpoints as folders: one counts as whole once the list of its files, beside them, is true.

An interruption may leave half of one in S3. Besides what the Trainer writes, one holds the run's identity and history.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from trainer.run_identity import check_identity
from trainyard_watch.file_list import is_whole, write_file_list

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainyard_watch.retention import Retention

IDENTITY, HISTORY = "identity.json", "history.jsonl"


def step_of(checkpoint: Path) -> int:
    """Return the step that a checkpoint was made after."""
    return int(checkpoint.name.rpartition("-")[2])


def complete(checkpoint: Path, *, identity: Mapping[str, Any], history: bytes) -> int:
    """Put identity and history into a checkpoint that the Trainer wrote, list its files; return its bytes.

    Fails with OSError: the disk does not take them.
    """
    (checkpoint / IDENTITY).write_text(json.dumps(identity), encoding="utf-8")
    (checkpoint / HISTORY).write_bytes(history)
    return write_file_list(checkpoint)


def newest(folder: Path, *, identity: Mapping[str, Any]) -> Path | None:
    """Return the newest checkpoint whose files are all there; None if there is none.

    Raises:
        CheckpointError: it is another run's.
    """
    path = max(filter(is_whole, _checkpoints(folder)), key=step_of, default=None)
    if path is not None:
        told = path / IDENTITY
        there = json.loads(told.read_bytes()) if told.is_file() else {}
        check_identity(there, identity, what=f"the checkpoint {path}")
    return path


def remove_torn(folder: Path, retention: Retention) -> None:
    """Remove the checkpoints that an interruption tore; `retention` learns which stay.

    The Trainer's own rotation is not used: it counts torn ones, too, goes by the time a folder was written or restored
    at, and comes before the newest is whole, here and in S3.
    """
    for checkpoint in _checkpoints(folder):
        if is_whole(checkpoint):
            retention.note_found(step_of(checkpoint))
        else:
            retention.distrust(step_of(checkpoint))
            shutil.rmtree(checkpoint, ignore_errors=True)


def _checkpoints(folder: Path) -> list[Path]:
    return [path for path in folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
