"""Mesh of the ranks: pipeline x replicate x shard x context x tensor.

The last axis varies fastest, so the ranks of one tensor group have consecutive numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

    from trainer.sharding.hyperparameters import Degrees

AXES = ("pp", "dp_replicate", "dp_shard_cp", "tp")
SHARING = AXES[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMesh:
    """Mesh of all ranks, and this rank's sub-meshes and groups.

    Attributes:
        degrees: size of each axis.
        whole: mesh with the axes `AXES`.
        context: mesh of the ranks that split a sequence; None if no sequence is split.
        stage_group: process group of the ranks that have the same layers as this rank.
    """

    degrees: Degrees
    whole: DeviceMesh
    context: DeviceMesh | None
    stage_group: ProcessGroup

    @classmethod
    def of(cls, degrees: Degrees, device: torch.device) -> RankMesh:
        """Return the mesh of all ranks; every rank must call it.

        The method uses only features that all torch versions from 2.8 to 2.13 have: meshes over all ranks, and
        process groups.
        """
        shape = (degrees.pipeline, degrees.replicate, degrees.shard, degrees.tensor)
        whole = init_device_mesh(device.type, shape, mesh_dim_names=AXES)
        stages = [stage.flatten().tolist() for stage in whole.mesh]
        return cls(
            degrees=degrees,
            whole=whole,
            context=_context_mesh(whole, degrees),
            stage_group=dist.new_subgroups_by_enumeration(stages)[0],
        )

    def place(self, axis: str) -> int:
        """Return this rank's index on an axis.

        The axis is one of `AXES`, or one of the two parts of the axis `dp_shard_cp`: `dp_shard` or `cp`.
        """
        if axis in AXES:
            return self.whole[axis].get_local_rank()
        shard, context = divmod(self.whole[SHARING].get_local_rank(), self.degrees.context)
        return {"dp_shard": shard, "cp": context}[axis]

    @property
    def groups(self) -> list[ProcessGroup]:
        """Return this rank's process groups that a step's collectives use."""
        own = [self.stage_group, *(self.whole[axis].get_group() for axis in AXES)]
        return [*own, self.context.get_group("cp")] if self.context else own

    @property
    def reader(self) -> int:
        """Return the index of the part of each global batch that this rank reads.

        Ranks that split one model read the same part.
        """
        shards = self.degrees.shard // self.degrees.context
        return self.place("dp_replicate") * shards + self.place("dp_shard")

    @property
    def sharding(self) -> DeviceMesh:
        """Return the mesh for FSDP2: the shard axis, or for HSDP the replicate and the shard axis."""
        if self.degrees.replicate == 1:
            return self.whole[SHARING]
        return self.whole["dp_replicate", SHARING]

    @property
    def is_first_of_model(self) -> bool:
        """Return whether this rank is the first of those that read the same samples."""
        return not any(self.place(axis) for axis in ("pp", "cp", "tp"))

    @property
    def speaks_for_stage(self) -> bool:
        """Return whether this rank is the first of those that have the same layers."""
        return not any(self.place(axis) for axis in AXES[1:])

    @property
    def knows_loss(self) -> bool:
        """Return whether this rank's loss counts: the rank must be in the last stage and first on the tensor axis."""
        return self.is_last_stage and self.place("tp") == 0

    @property
    def is_last_stage(self) -> bool:
        """Return whether this rank's layers include the head, which returns the logits."""
        return self.place("pp") == self.degrees.pipeline - 1


def _context_mesh(whole: DeviceMesh, degrees: Degrees) -> DeviceMesh | None:
    if degrees.context == 1:
        return None
    shape = (-1, degrees.context, degrees.tensor)
    ranks = whole.mesh.view(shape).transpose(1, 2).reshape(-1, degrees.context)
    return DeviceMesh(whole.device_type, ranks, mesh_dim_names=("other", "cp"))["cp"]
