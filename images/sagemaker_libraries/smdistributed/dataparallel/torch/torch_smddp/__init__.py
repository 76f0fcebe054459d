"""Backend `smddp` of torch.distributed; its collectives use NCCL or gloo.

Importing this package registers the backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from datetime import timedelta

BACKEND = "smddp"


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> dist.Backend:
    if torch.cuda.is_available():
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return dist.ProcessGroupNCCL(store, rank, size, options)
    return dist.ProcessGroupGloo(store, rank, size, timeout)


if not hasattr(dist.Backend, BACKEND.upper()):
    dist.Backend.register_backend(
        BACKEND, _create, devices=["cuda"] if torch.cuda.is_available() else ["cpu"]
    )
