"""Ranks of process groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def get_global_ranks(group: ProcessGroup | None) -> list[int]:
    """Return the global ranks of a group; None means all ranks."""
    return dist.get_process_group_ranks(group or dist.group.WORLD)
