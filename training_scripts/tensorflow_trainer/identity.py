"""Identity of a run over its resumes: that of `trainer.training_state`, as text beside the weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainer import run_identity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

NAME = "identity"
"""Of the array of a checkpoint that holds it."""


def check_identity(path: Path, arrays: Mapping[str, np.ndarray], here: Mapping[str, Any]) -> None:
    """Refuse the checkpoint of another run, and one that does not tell whose it is.

    Raises:
        CheckpointError: the model, the data set, the seed or the batch size differs.
    """
    there = json.loads(str(arrays[NAME])) if NAME in arrays else {}
    run_identity.check_identity(there, here, what=f"the checkpoint {path}")
