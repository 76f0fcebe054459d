"""Checkpoints of a TensorFlow run: `step-00000080.npz` and its SHA-256, each written atomically.

The array `identity` of a checkpoint has the run's identity as JSON text; see `trainer.run_identity`.
"""

from __future__ import annotations

import hashlib
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer import run_identity
from trainyard_watch.retention import LocalLayout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

IDENTITY = "identity"


def save(folder: Path, step: int, arrays: Mapping[str, np.ndarray]) -> int:
    """Write the checkpoint of a step; return its size in bytes.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    content = buffer.getvalue()
    path = folder / f"step-{step:08d}.npz"
    digest = hashlib.sha256(content).hexdigest()
    for target, data in ((path, content), (path.with_suffix(".sha256"), digest.encode())):
        beside = folder.parent / f".{target.name}.new"
        beside.write_bytes(data)
        try:
            beside.rename(target)
        except OSError:  # The checkpoint folder is on another file system.
            beside.unlink()
            inside = folder / f".{target.name}.new"
            inside.write_bytes(data)
            inside.rename(target)
    return len(content)


def newest(folder: Path) -> tuple[Path, int, dict[str, np.ndarray]] | None:
    """Return path, step and arrays of the newest checkpoint with a correct SHA-256, or None."""
    for step in sorted(LocalLayout(folder).steps(), reverse=True):
        path = folder / f"step-{step:08d}.npz"
        digest = path.with_suffix(".sha256")
        if not (path.is_file() and digest.is_file()):
            continue
        content = path.read_bytes()
        if digest.read_text() == hashlib.sha256(content).hexdigest():
            with np.load(io.BytesIO(content)) as arrays:
                return path, step, dict(arrays)
    return None


def check_identity(path: Path, arrays: Mapping[str, np.ndarray], here: Mapping[str, Any]) -> None:
    """Reject the checkpoint of another run, or one without an identity.

    Raises:
        CheckpointError: the model, the data set, the seed or the batch size differs or is missing.
    """
    there = json.loads(str(arrays[IDENTITY])) if IDENTITY in arrays else {}
    run_identity.check_identity(there, here, what=f"the checkpoint {path}")
