"""State that a script can query after `torch.sagemaker.init`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(slots=True)
class State:
    """The properties of `torch.sagemaker.state`.

    `tp_process_group` and `rep_rank_process_group` are None if `is_native` is True (no degree was set).

    `mesh` has the axes replicate, shard and tensor, in this order; the ranks of the tensor axis are
    adjacent.
    """

    is_initialized: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    rank: int = 0
    world_size: int = 1
    hybrid_shard_degree: int = 0
    tensor_parallel_degree: int = 1
    tp_rank: int = 0
    mesh: DeviceMesh | None = None
    tp_process_group: ProcessGroup | None = None
    rep_rank_process_group: ProcessGroup | None = None
    world_process_group: ProcessGroup | None = None

    @property
    def is_native(self) -> bool:
        """True if no degree was set, so that the script's own FSDP settings apply."""
        return self.hybrid_shard_degree == 0 and self.tensor_parallel_degree == 1

    @property
    def tp_size(self) -> int:
        """An alias of `tensor_parallel_degree`."""
        return self.tensor_parallel_degree


state = State()
