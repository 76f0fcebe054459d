"""Functions that save and load sharded checkpoints, re-exported from `distributed.checkpoint`."""

from __future__ import annotations

from torch.sagemaker.distributed.checkpoint.state_dict_loader import load
from torch.sagemaker.distributed.checkpoint.state_dict_saver import (
    async_save,
    maybe_finalize_async_calls,
    save,
)

__all__ = ["async_save", "load", "maybe_finalize_async_calls", "save"]
