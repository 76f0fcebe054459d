"""Layout that a script may query after `torch.sagemaker.init`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(slots=True)
class State:
    """The properties of `torch.sagemaker.state`; groups are None if the script's own FSDP decides.

    `mesh` has the axes replicate, shard and tensor, in this order, the tensor ranks nearest to each other.
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
        """True if the script's own FSDP decides: no degree was asked for."""
        return self.hybrid_shard_degree == 0 and self.tensor_parallel_degree == 1

    @property
    def tp_size(self) -> int:
        """An alias of `tensor_parallel_degree`."""
        return self.tensor_parallel_degree


state = State()
