"""The Trainer's checkpoints as folders: one counts as whole once the list of its files, beside them, is true.

An interruption may leave half of one in S3. Besides what the Trainer writes, one holds the run's identity and history.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainer.run_identity import check_identity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILES, IDENTITY, HISTORY = "files.json", "identity.json", "history.jsonl"


def step_of(checkpoint: Path) -> int:
    """Return the step that a checkpoint was made after."""
    return int(checkpoint.name.rpartition("-")[2])


def complete(checkpoint: Path, *, identity: Mapping[str, Any], history: bytes) -> int:
    """Put identity and history into a checkpoint that the Trainer wrote, list its files; return its bytes.

    Fails with OSError: the disk does not take them.
    """
    (checkpoint / IDENTITY).write_text(json.dumps(identity), encoding="utf-8")
    (checkpoint / HISTORY).write_bytes(history)
    sizes = {each.name: each.stat().st_size for each in checkpoint.iterdir()}
    (checkpoint / FILES).write_text(json.dumps(sizes), encoding="utf-8")
    return sum(sizes.values())


def newest(folder: Path, *, identity: Mapping[str, Any]) -> Path | None:
    """Return the newest checkpoint whose files are all there; None where there is none.

    Raises:
        CheckpointError: it is another run's.
    """
    found = [
        path
        for path in folder.glob("checkpoint-*")
        if path.name.rpartition("-")[2].isdigit() and _is_whole(path)
    ]
    path = max(found, key=step_of, default=None)
    if path is not None:
        told = path / IDENTITY
        there = json.loads(told.read_bytes()) if told.is_file() else {}
        check_identity(there, identity, what=f"the checkpoint {path}")
    return path


def _is_whole(checkpoint: Path) -> bool:
    listed = checkpoint / FILES
    if not listed.is_file():
        return False
    try:
        sizes = json.loads(listed.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return all(
        (checkpoint / name).is_file() and (checkpoint / name).stat().st_size == size
        for name, size in sizes.items()
    )
