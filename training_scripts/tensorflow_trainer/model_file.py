"""The trained model as files: its weights and its sizes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tensorflow_trainer.decoder import DecoderShape


def save_model(folder: Path, weights: Mapping[str, np.ndarray], shape: DecoderShape) -> None:
    """Write weights and sizes of the model into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "model.npz", **weights)
    sizes = dataclasses.asdict(shape)
    (folder / "model.json").write_text(json.dumps(sizes, indent=2) + "\n", encoding="utf-8")


def sha256_of(weights: Mapping[str, np.ndarray]) -> str:
    """Return the digest of the weights, by which two runs are compared."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].tobytes())
    return digest.hexdigest()
