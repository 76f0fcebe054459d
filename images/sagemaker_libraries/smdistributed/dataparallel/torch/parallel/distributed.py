"""DistributedDataParallel: torch's own class."""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
