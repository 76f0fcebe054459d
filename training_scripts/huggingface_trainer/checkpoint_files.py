"""Checkpoint folders of Hugging Face's Trainer, with a list of their files to recognize incomplete ones.

An interruption may leave an incomplete checkpoint in S3. A checkpoint is complete if it has the list, and
all listed files exist with the listed sizes. Besides the Trainer's files, it has the run's identity and
history.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from trainer.run_identity import check_identity
from trainyard_watch.file_list import is_whole, newest_whole, write_file_list
from trainyard_watch.retention import step_folders

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainyard_watch.retention import Retention

IDENTITY, HISTORY = "identity.json", "history.jsonl"
BEGINS = "checkpoint-"


def step_of(checkpoint: Path) -> int:
    """Return the number of steps after which a checkpoint was saved: 80 for the folder `checkpoint-80`."""
    return int(checkpoint.name.removeprefix(BEGINS))


def complete(checkpoint: Path, *, identity: Mapping[str, Any], history: bytes) -> int:
    """Add identity, history and file list to a checkpoint of the Trainer; return its size in bytes.

    Raises:
        OSError: a file cannot be written.
    """
    (checkpoint / IDENTITY).write_text(json.dumps(identity), encoding="utf-8")
    (checkpoint / HISTORY).write_bytes(history)
    return write_file_list(checkpoint)


def newest(folder: Path, *, identity: Mapping[str, Any]) -> Path | None:
    """Return the newest complete checkpoint, or None if there is none.

    Raises:
        CheckpointError: the checkpoint belongs to another run.
    """
    path = newest_whole(folder, BEGINS)
    if path is not None:
        file = path / IDENTITY
        there = json.loads(file.read_bytes()) if file.is_file() else {}
        check_identity(there, identity, what=f"the checkpoint {path}")
    return path


def remove_torn(folder: Path, retention: Retention) -> None:
    """Remove incomplete checkpoints, and register the complete ones with `retention`.

    The Trainer's own rotation is not used: it counts incomplete checkpoints, orders them by the time at which they were
    written or restored, and runs before the newest is complete on this host and in S3.
    """
    for step, checkpoint in reversed(step_folders(folder, BEGINS)):
        if is_whole(checkpoint):
            retention.note_found(step)
        else:
            retention.distrust(step)
            shutil.rmtree(checkpoint, ignore_errors=True)
