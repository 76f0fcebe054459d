"""Interface of SMDDP before version 1.4: torch.distributed with the default backend `smddp`."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist
from torch.distributed import *  # noqa: F403 the interface is torch's

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 registers the backend


def init_process_group(backend: str = "smddp", **settings: Any) -> None:
    """Initialize the default process group, unless it is already initialized."""
    if not dist.is_initialized():
        dist.init_process_group(backend, **settings)


def get_local_rank() -> int:
    """Return this process's rank on its host."""
    return int(os.environ.get("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")))
