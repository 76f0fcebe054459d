"""Data parallel models in the interface that SMDDP had before version 1.4."""

from __future__ import annotations

from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
