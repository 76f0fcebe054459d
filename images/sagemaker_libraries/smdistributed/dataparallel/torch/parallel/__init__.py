"""Data parallel models in the library's interface before version 1.4."""

from __future__ import annotations

from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
