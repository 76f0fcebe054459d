"""Reader of sharded checkpoints, for any number of ranks."""

from __future__ import annotations

from typing import Any

import torch.distributed.checkpoint as dcp
from torch.sagemaker.distributed.checkpoint.state_dict_saver import known


def load(state_dict: dict[str, Any], **settings: Any) -> None:
    """Load a checkpoint into the state dict in place; every rank must call this function."""
    dcp.load(state_dict, **known(settings, "storage_reader"))
