"""Identity of a run in its checkpoints, as JSON text beside the weights; see `trainer.run_identity`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainer import run_identity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

NAME = "identity"
"""Name of the checkpoint's array with the identity."""


def check_identity(path: Path, arrays: Mapping[str, np.ndarray], here: Mapping[str, Any]) -> None:
    """Reject the checkpoint of another run, or one without an identity.

    Raises:
        CheckpointError: the model, the data set, the seed or the batch size differs or is missing.
    """
    there = json.loads(str(arrays[NAME])) if NAME in arrays else {}
    run_identity.check_identity(there, here, what=f"the checkpoint {path}")
