"""The library's first interface: models in parallel."""

from __future__ import annotations

from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
