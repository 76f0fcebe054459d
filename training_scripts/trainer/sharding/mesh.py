"""The ranks as a mesh: pipeline x replicate x shard x context x tensor, the last ones nearest to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.distributed.device_mesh import init_device_mesh

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

    from trainer.sharding.degrees import Degrees

AXES = ("pp", "dp_replicate", "dp_shard_cp", "tp")
SHARING = AXES[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMesh:
    """This rank's place on each axis, and the meshes of those that share something.

    Attributes:
        whole: with `AXES`.
        sharing: those that share a shard, as `dp_shard` x `cp`.
        stage_group: the ranks that have the same layers.
    """

    degrees: Degrees
    whole: DeviceMesh
    sharing: DeviceMesh
    stage_group: ProcessGroup

    @classmethod
    def of(cls, degrees: Degrees, device: torch.device) -> RankMesh:
        """Return the mesh of all ranks; every rank must call it."""
        shape = (degrees.pipeline, degrees.replicate, degrees.shard, degrees.tensor)
        whole = init_device_mesh(device.type, shape, mesh_dim_names=AXES)
        parts = (degrees.shard // degrees.context, degrees.context)
        return cls(
            degrees=degrees,
            whole=whole,
            sharing=whole[SHARING]._unflatten(0, parts, ("dp_shard", "cp")),  # noqa: SLF001
            stage_group=whole[AXES[1:]]._flatten("stage").get_group(),  # noqa: SLF001
        )

    def place(self, axis: str) -> int:
        """Return this rank's place on an axis."""
        mesh = self.whole if axis in AXES else self.sharing
        return mesh[axis].get_local_rank()

    @property
    def reader(self) -> int:
        """Return which part of each global batch this rank reads, with those that split a model."""
        shards = self.degrees.shard // self.degrees.context
        return self.place("dp_replicate") * shards + self.place("dp_shard")

    @property
    def sharding(self) -> DeviceMesh:
        """Return the mesh that parameters are sharded over, and before it replicated over if they are."""
        if self.degrees.replicate == 1:
            return self.whole[SHARING]
        return self.whole["dp_replicate", SHARING]

    @property
    def is_first_of_model(self) -> bool:
        """Return whether this rank speaks for all that read the same samples."""
        return not any(self.place(axis) for axis in ("pp", "cp", "tp"))

    @property
    def knows_loss(self) -> bool:
        """Return whether this rank's loss counts: its stage is the last, and of split layers it is the first."""
        return self.is_last_stage and self.place("tp") == 0

    @property
    def is_last_stage(self) -> bool:
        """Return whether logits come out of this rank's layers."""
        return self.place("pp") == self.degrees.pipeline - 1
