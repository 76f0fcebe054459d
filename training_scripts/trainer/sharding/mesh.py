"""The ranks as a mesh: pipeline x replicate x shard x context x tensor, the last ones nearest to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

    from trainer.sharding.degrees import Degrees

AXES = ("pp", "dp_replicate", "dp_shard_cp", "tp")
SHARING = AXES[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMesh:
    """This rank's place on each axis, and the meshes of those that share something.

    Attributes:
        whole: with `AXES`.
        context: the ranks that split a sequence; None if no sequence is split.
        stage_group: the ranks that have the same layers.
    """

    degrees: Degrees
    whole: DeviceMesh
    context: DeviceMesh | None
    stage_group: ProcessGroup

    @classmethod
    def of(cls, degrees: Degrees, device: torch.device) -> RankMesh:
        """Return the mesh of all ranks; every rank must call it.

        Of torch's meshes only what 2.8 to 2.13 have alike is used: meshes that are made whole, and groups.
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
        """Return this rank's place on an axis: one of `AXES`, or of `dp_shard` and `cp`, its parts."""
        if axis in AXES:
            return self.whole[axis].get_local_rank()
        shard, context = divmod(self.whole[SHARING].get_local_rank(), self.degrees.context)
        return {"dp_shard": shard, "cp": context}[axis]

    @property
    def groups(self) -> list[ProcessGroup]:
        """Return the process groups of this rank that a step's collectives use."""
        own = [self.stage_group, *(self.whole[axis].get_group() for axis in AXES)]
        return [*own, self.context.get_group("cp")] if self.context else own

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
    def speaks_for_stage(self) -> bool:
        """Return whether this rank is the first of those that have the same layers."""
        return not any(self.place(axis) for axis in AXES[1:])

    @property
    def knows_loss(self) -> bool:
        """Return whether this rank's loss counts: its stage is the last, and of split layers it is the first."""
        return self.is_last_stage and self.place("tp") == 0

    @property
    def is_last_stage(self) -> bool:
        """Return whether logits come out of this rank's layers."""
        return self.place("pp") == self.degrees.pipeline - 1


def _context_mesh(whole: DeviceMesh, degrees: Degrees) -> DeviceMesh | None:
    if degrees.context == 1:
        return None
    shape = (-1, degrees.context, degrees.tensor)
    ranks = whole.mesh.view(shape).transpose(1, 2).reshape(-1, degrees.context)
    return DeviceMesh(whole.device_type, ranks, mesh_dim_names=("other", "cp"))["cp"]
