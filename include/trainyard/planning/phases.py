"""Memory that a training takes outside of its steps: at its start, at a checkpoint, at its end.

`ScriptMemory` is the one place with what the scripts do; change it with them. All figures are bytes for each parameter
of what is named, in fp32 (4) and with AdamW's two moments (12).
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

    from trainyard.planning.compute import Cluster
    from trainyard.planning.mesh import Mesh
    from trainyard.planning.shapes import ModelShape

BYTES_STATE = BYTES_FP32 + BYTES_ADAMW
"""Of one parameter in a checkpoint: its weight and two moments."""
PROCESS_BYTES = 4 * BYTES_PER_GIB
"""A rank's own on its host: Python, torch, CUDA's context, the loader's processes. An estimate."""
HOST_SHARE = 0.95
"""Of an instance's memory that its ranks may take together; the system has the rest."""


class PlanPhase(StrEnum):
    """Moments outside of the steps that take memory of their own."""

    START = "start"
    CHECKPOINT = "checkpoint"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptMemory:
    """Memory of a training script outside of its steps.

    Attributes:
        start_host: for each parameter of the whole model, on the host of every rank.
        start_is_by_layer: whether a rank's accelerator has one whole layer beside its shards, else the whole model.
        checkpoint_device: for each parameter of the rank's shard, on its accelerator, beside a step.
        checkpoint_host: likewise on its host; kept until the end.
        checkpoint_is_of_first: whether rank 0 alone copies.
        end_host: for each parameter of the rank's stage, on the host of every rank.
        end_host_of_first: for each parameter of the whole model, on the host of rank 0.
    """

    start_host: float
    start_is_by_layer: bool
    checkpoint_device: float
    checkpoint_host: float
    checkpoint_is_of_first: bool
    end_host: float
    end_host_of_first: float


COPIES = ScriptMemory(
    start_host=BYTES_FP32,
    start_is_by_layer=False,
    checkpoint_device=0.0,
    checkpoint_host=BYTES_STATE,
    checkpoint_is_of_first=True,
    end_host=0.0,
    end_host_of_first=BYTES_FP32,
)
"""train_ddp.py: every rank makes the whole model on its host; rank 0 copies the state, and the weights at the end."""
SHARDS = ScriptMemory(
    start_host=0.0,
    start_is_by_layer=True,
    checkpoint_device=0.0,
    checkpoint_host=BYTES_STATE,
    checkpoint_is_of_first=False,
    end_host=0.0,
    end_host_of_first=BYTES_FP32,
)
"""train_fsdp.py: layers are made one by one, each rank copies its shards to its host; at the end
rank 0 alone keeps the whole model on its host, put together tensor by tensor (trainer.sharding.model.whole_weights)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most at one phase, of an accelerator or of an instance's host, and what it is made of."""

    phase: PlanPhase
    is_of_host: bool
    num_bytes: float
    usable_bytes: float
    cause: str

    @property
    def fits(self) -> bool:
        """True if there is room for it."""
        return self.num_bytes <= self.usable_bytes

    def __str__(self) -> str:
        """Return the refusal: `at the end: 2.05 TiB on each instance's host (...), which holds 1.9 TiB`."""
        where = "each instance's host" if self.is_of_host else "each accelerator"
        return (
            f"at the {self.phase}: {format_bytes(self.num_bytes)} on {where} ({self.cause}), "
            f"which holds {format_bytes(self.usable_bytes)}"
        )


def phase_peaks(
    shape: ModelShape, mesh: Mesh, cluster: Cluster, *, step_bytes: float, usable_bytes: float
) -> Iterator[Peak]:
    """Yield what the rank, and the instance, that needs most takes outside of the steps.

    Worked: 70.6e9 parameters by FSDP over 32 ranks, 8 an instance: 212 GB of a checkpoint's copy on each host, and at
    the end 282 GB more on the first.

    Args:
        shape: the model.
        mesh: how it is spread.
        cluster: on what.
        step_bytes: of an accelerator in a step.
        usable_bytes: of an accelerator.
    """
    is_copies = max(mesh.tp, mesh.dp_shard, mesh.pp) == 1
    script, ranks = COPIES if is_copies else SHARDS, cluster.ranks_per_instance
    whole, stage = float(shape.num_parameters), stage_parameters(shape, mesh)
    shard = stage / mesh.tp / mesh.dp_shard
    host = HOST_SHARE * cluster.hardware.instance.memory_gib * BYTES_PER_GIB - ranks * PROCESS_BYTES
    largest = max(shape.layer_parameters, 2 * shape.embedding_parameters)
    begun = shard + largest if script.start_is_by_layer else stage
    yield Peak(
        phase=PlanPhase.START,
        is_of_host=False,
        num_bytes=BYTES_FP32 * begun,
        usable_bytes=usable_bytes,
        cause="its shards and the largest layer whole"
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
    gathered = ranks * script.end_host * stage
    yield Peak(
        phase=PlanPhase.END,
        is_of_host=True,
        num_bytes=copied + gathered + script.end_host_of_first * whole,
        usable_bytes=host,
        cause=f"{format_bytes(copied)} of the last checkpoint's copy, {format_bytes(gathered)} that its ranks gather, "
        f"{format_bytes(script.end_host_of_first * whole)} of the model that rank 0 writes",
    )
