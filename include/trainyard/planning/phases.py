"""Memory peaks of a training outside of its steps: at its start, at a checkpoint, at its end.

`ScriptMemory` describes the training scripts. Change it together with them. Its figures are bytes per parameter: 4 for
fp32 weights, 12 with AdamW's two moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from trainyard.planning.activations import BYTES_FP32
from trainyard.planning.memory import BYTES_ADAMW, stage_parameters
from trainyard.units import BYTES_PER_GIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.catalog.instances import InstanceType
    from trainyard.planning.compute import Cluster
    from trainyard.planning.mesh import Mesh
    from trainyard.planning.shapes import ModelShape

BYTES_STATE = BYTES_FP32 + BYTES_ADAMW
"""Bytes per parameter in a checkpoint: its weight and two moments."""
PROCESS_BYTES = 4 * BYTES_PER_GIB
"""Host memory of one rank's processes: Python, torch, CUDA's context, loader processes. An estimate."""
HOST_SHARE = 0.95
"""Share of an instance's memory for its ranks. The operating system uses the rest."""


class PlanPhase(StrEnum):
    """Phases of a training, outside of its steps, that each have a memory peak of their own."""

    START = "start"
    CHECKPOINT = "checkpoint"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptMemory:
    """Memory of a training script outside of its steps.

    Attributes:
        start_host: host bytes at the start, for each rank and each parameter of the whole model.
        start_is_by_layer: True if a rank's accelerator has its shards and one whole layer at the start; False
            if it has the whole model.
        checkpoint_device: accelerator bytes at a checkpoint, for each parameter of the rank's shard. They are
            added to the peak of a step.
        checkpoint_host: host bytes at a checkpoint, for each parameter of the rank's shard; kept until the end.
        checkpoint_is_of_first: True if only rank 0 copies the state at a checkpoint.
        end_host_of_first: host bytes of rank 0 at the end, for each parameter of the whole model.
    """

    start_host: float
    start_is_by_layer: bool
    checkpoint_device: float
    checkpoint_host: float
    checkpoint_is_of_first: bool
    end_host_of_first: float


COPIES = ScriptMemory(
    start_host=BYTES_FP32,
    start_is_by_layer=False,
    checkpoint_device=0.0,
    checkpoint_host=BYTES_STATE,
    checkpoint_is_of_first=True,
    end_host_of_first=BYTES_FP32,
)
"""train_ddp.py: every rank creates the whole model on its host. Rank 0 copies the state at a checkpoint, and the
weights at the end."""
SHARDS = ScriptMemory(
    start_host=0.0,
    start_is_by_layer=True,
    checkpoint_device=0.0,
    checkpoint_host=BYTES_STATE,
    checkpoint_is_of_first=False,
    end_host_of_first=BYTES_FP32,
)
"""train_fsdp.py: layers are created one by one. Each rank copies its shards to its host at a checkpoint. At the end
rank 0 assembles the whole model on its host, tensor by tensor (trainer.sharding.model.whole_weights)."""


WHOLE_MODEL_SCRIPTS = frozenset({"train_ddp.py", "train_horovod.py", "train_deepspeed.py"})
"""Scripts that start as `COPIES` does. train_deepspeed.py does so under ZeRO-3, too: it does not use
`deepspeed.zero.Init`, so DeepSpeed shards a model that each rank has created whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Memory peak of one phase, on an accelerator or on an instance's host.

    Attributes:
        is_of_host: True for the host's memory, False for an accelerator's.
        num_bytes: bytes at the peak.
        usable_bytes: bytes that are available.
        cause: contents of the memory, in words.
    """

    phase: PlanPhase
    is_of_host: bool
    num_bytes: float
    usable_bytes: float
    cause: str

    @property
    def fits(self) -> bool:
        """True if the peak is within the usable memory."""
        return self.num_bytes <= self.usable_bytes

    def __str__(self) -> str:
        """Return the peak in words: `at the end, an instance's host has 1.9 TiB but needs 2.05 TiB (...)`."""
        where = "an instance's host" if self.is_of_host else "each accelerator"
        return (
            f"at the {self.phase}, {where} has {format_bytes(self.usable_bytes)} but needs "
            f"{format_bytes(self.num_bytes)} ({self.cause})"
        )


def host_bytes(instance: InstanceType, *, ranks: int) -> float:
    """Return the bytes of an instance's memory that are left for weights and copies of checkpoints.

    The operating system takes 5 % of the memory. The processes of each rank take 4 GiB, for Python, torch
    and loaders. Worked: ml.g5.2xlarge with 32 GiB and one rank has 0.95 x 32 - 4 = 26.4 GiB left.
    """
    return HOST_SHARE * instance.memory_gib * BYTES_PER_GIB - ranks * PROCESS_BYTES


def whole_model_peaks(
    num_parameters: float, instance: InstanceType, *, ranks: int
) -> Iterator[Peak]:
    """Yield the memory peaks at the start of one of `WHOLE_MODEL_SCRIPTS`, on an accelerator and on a host.

    The peaks are lower bounds, because they count the weights alone. They are compared with the whole memory.
    Worked: on ml.p4d.24xlarge, 20e9 parameters on 8 ranks need 80 GB on an accelerator that has 40 GiB,
    and 640 GB on a host that has 1,152 GiB.
    """
    if instance.num_accelerators:
        yield Peak(
            phase=PlanPhase.START,
            is_of_host=False,
            num_bytes=BYTES_FP32 * num_parameters,
            usable_bytes=instance.accelerator_memory_gib * BYTES_PER_GIB,
            cause="the whole model",
        )
    yield Peak(
        phase=PlanPhase.START,
        is_of_host=True,
        num_bytes=ranks * BYTES_FP32 * num_parameters,
        usable_bytes=instance.memory_gib * BYTES_PER_GIB,
        cause=f"the whole model on each of {ranks} ranks",
    )


def phase_peaks(
    shape: ModelShape, mesh: Mesh, cluster: Cluster, *, step_bytes: float, usable_bytes: float
) -> Iterator[Peak]:
    """Yield the memory peaks outside of the steps, on the rank and the instance that need most.

    Worked: 70.6e9 parameters by FSDP over 32 ranks, 8 per instance: the copy of a checkpoint takes 212 GB on each host,
    and the first host needs another 282 GB at the end.

    Args:
        shape: shape of the model.
        mesh: layout of the ranks.
        cluster: instances.
        step_bytes: bytes of an accelerator at the peak of a step.
        usable_bytes: usable bytes of an accelerator.
    """
    is_copies = max(mesh.tp, mesh.dp_shard, mesh.pp) == 1
    script, ranks = COPIES if is_copies else SHARDS, cluster.ranks_per_instance
    whole, stage = float(shape.num_parameters), stage_parameters(shape, mesh)
    shard = stage / mesh.tp / mesh.dp_shard
    host = host_bytes(cluster.hardware.instance, ranks=ranks)
    largest = max(shape.layer_parameters, 2 * shape.embedding_parameters)
    begun = shard + largest if script.start_is_by_layer else stage
    yield Peak(
        phase=PlanPhase.START,
        is_of_host=False,
        num_bytes=BYTES_FP32 * begun,
        usable_bytes=usable_bytes,
        cause="its shards and the whole largest layer"
        if script.start_is_by_layer
        else "the whole model",
    )
    yield Peak(
        phase=PlanPhase.START,
        is_of_host=True,
        num_bytes=ranks * script.start_host * whole,
        usable_bytes=host,
        cause=f"the whole model on each of {ranks} ranks",
    )
    if script.checkpoint_device:
        yield Peak(
            phase=PlanPhase.CHECKPOINT,
            is_of_host=False,
            num_bytes=step_bytes + script.checkpoint_device * shard,
            usable_bytes=usable_bytes,
            cause="a step, and the copy that is being written",
        )
    copied = (1 if script.checkpoint_is_of_first else ranks) * script.checkpoint_host * shard
    yield Peak(
        phase=PlanPhase.CHECKPOINT,
        is_of_host=True,
        num_bytes=copied,
        usable_bytes=host,
        cause="the copy of weights and moments that is being written",
    )
    yield Peak(
        phase=PlanPhase.END,
        is_of_host=True,
        num_bytes=copied + script.end_host_of_first * whole,
        usable_bytes=host,
        cause=f"{format_bytes(copied)} of the last checkpoint's copy, "
        f"{format_bytes(script.end_host_of_first * whole)} of the model that rank 0 writes",
    )
