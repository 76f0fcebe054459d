"""Bytes of one rank's accelerator, by part: the states, and the most that a step has beside them at any moment.

Sources: Rajbhandari et al. 2020 (ZeRO), section 3; Korthikanti et al. 2022, section 4.2.3; torch 2.13's FSDP2 and
`torch.distributed.pipelining.stage`, by which the training scripts shard and pass micro batches on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from trainyard.planning.activations import (
    BYTES_FP32,
    Recompute,
    layer_activation_bytes,
    logits_bytes,
    residual_bytes,
)
from trainyard.planning.shapes import GPT, TRAINYARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.planning.activations import Batching
    from trainyard.planning.mesh import Mesh
    from trainyard.planning.shapes import ModelShape

BYTES_ADAMW = 8
"""Two fp32 moments of a parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes at the peak of a step, on the rank that needs most.

    Attributes:
        buffers: bf16 copies of weights, what FSDP gathers, gradients before they are scattered, and the logits.
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float

    @property
    def total(self) -> float:
        """All parts."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.buffers

    def to_dict(self) -> dict[str, float]:
        """Return the parts and their total, in bytes."""
        return {**asdict(self), "total": self.total}


def memory_use(shape: ModelShape, mesh: Mesh, batching: Batching) -> MemoryUse:
    """Return the bytes of the rank that needs most.

    States: fp32 weights, fp32 gradients and AdamW's two moments are 16 bytes for each parameter, as under torch's
    autocast and FSDP2's mixed precision, divided by tp and dp_shard. Worked: 8.03e9 parameters over 8 ranks of
    dp_shard: 4.02e9 of parameters, as much of gradients, 8.03e9 of optimizer.
    """
    sharded = stage_parameters(shape, mesh) / mesh.tp / mesh.dp_shard
    activations, buffers = max(_moments(shape, mesh, batching), key=sum)
    return MemoryUse(
        parameters=BYTES_FP32 * sharded,
        gradients=BYTES_FP32 * sharded,
        optimizer=BYTES_ADAMW * sharded,
        activations=activations,
        buffers=buffers,
    )


def stage_parameters(shape: ModelShape, mesh: Mesh) -> float:
    """Return the parameters of the largest pipeline stage: its layers, and one table (both without stages)."""
    layers = shape.num_layers / mesh.pp * shape.layer_parameters
    if mesh.pp == 1:
        return shape.num_parameters
    return layers + shape.embedding_parameters


def _moments(shape: ModelShape, mesh: Mesh, batching: Batching) -> Iterator[tuple[float, float]]:
    """Yield activations and buffers at the moments that can be a step's peak, on the stages that can have it.

    1. At the loss: all layers' activations, the head's and the logits.
    2. In the backward pass of the layer that comes first: it is whole again, and its inner width has gradients.
    3. After it: its activations are gone, its gradients are there in both precisions and not scattered yet.
    """
    size, last = batching.bytes_per_value, mesh.pp - 1
    is_cast = max(mesh.tp, mesh.dp_shard, mesh.pp) > 1
    residual = residual_bytes(shape, size, is_cast=is_cast)
    values = shape.sequence_length * batching.micro_batch_size * shape.hidden_size / mesh.tp
    # train_fsdp.py gathers the logits of split layers on every rank, for a loss that is one process's.
    logits = logits_bytes(
        shape,
        micro_batch_size=batching.micro_batch_size,
        tp=1 if shape.family == TRAINYARD else mesh.tp,
        bytes_per_value=size,
    )
    gathered = 1 if shape.family == GPT else mesh.tp
    norm = 2 * BYTES_FP32 if shape.family == TRAINYARD else size
    head = values * (norm + gathered * size)
    kept, whole = (
        layer_activation_bytes(
            shape,
            micro_batch_size=batching.micro_batch_size,
            tp=mesh.tp,
            recompute=each,
            bytes_per_value=size,
            is_cast=is_cast,
        )
        for each in (batching.recompute, Recompute.NONE)
    )
    at_loss, in_layer, after_layer = _weights(shape, mesh, batching)
    inner = (1 if shape.family == GPT else 2) * shape.inner_size / shape.hidden_size * size
    for stage in sorted({0, min(1, last), last}):
        held = _in_flight(stage, mesh, batching) * shape.num_layers / mesh.pp * kept
        passed = values * residual * _passed(stage, mesh, batching)
        # The logits themselves stay until the backward pass is over: its caller has them.
        outputs = logits * size / (size + 3 * BYTES_FP32) if stage == last else 0.0
        gradient = values * residual if stage == last else 0.0
        if stage == last:
            yield held + head, passed + logits + at_loss
        yield (
            held + whole - kept + values * inner + gradient,
            passed + outputs + in_layer,
        )
        yield held - kept + gradient, passed + outputs + after_layer


def _in_flight(stage: int, mesh: Mesh, batching: Batching) -> int:
    """Return how many micro batches a stage has passed forward and not back, under 1F1B: p of the first, 1 of the last.

    Source: Korthikanti et al. 2022, section 4.2.3.
    """
    return min(mesh.pp - stage, batching.num_micro_batches)


def _passed(stage: int, mesh: Mesh, batching: Batching) -> int:
    """Return how many tensors of one micro batch's hidden states a stage has beside its layers' activations.

    torch's PipelineStage makes a buffer for each micro batch of a step, not for those in flight alone: to receive
    inputs into (all but the first stage; those in flight are its first layer's kept inputs) and to receive gradients
    into (all but the last). All but the last keep the outputs in flight and the one whose sending is waited for last,
    all but the first the gradient that is being sent. Worked: 4 micro batches, 2 stages: first 4 + 2 + 1 = 7, last
    (4 - 1) + 1 = 4.
    """
    if mesh.pp == 1:
        return 0
    in_flight, num = _in_flight(stage, mesh, batching), batching.num_micro_batches
    received = num - in_flight + 1 if stage > 0 else 0
    sent = num + in_flight + 1 if stage < mesh.pp - 1 else 0
    return received + sent


def _weights(shape: ModelShape, mesh: Mesh, batching: Batching) -> tuple[float, float, float]:
    """Return the bytes of weights and gradients beside the states, at each of the three moments.

    Replicas alone: autocast's copies of all weights. Else FSDP2's: the tables, which stay gathered from forward to
    backward; one gathered layer, with shards the next one's, too, and with recomputation also what the last was
    gathered into; then a layer's gradients in both precisions. Stages gather all their layers for the whole step, and
    keep their gradients whole until its end.
    """
    size, own = batching.bytes_per_value, stage_parameters(shape, mesh) / mesh.tp
    if mesh.pp > 1:
        whole_gradients = BYTES_FP32 * own * (1 - 1 / mesh.dp_shard)
        return (size * own + whole_gradients,) * 3
    if mesh.tp == mesh.dp_shard == 1:
        return (0.0 if batching.precision == "fp32" else size * own,) * 3
    layer, table = shape.layer_parameters / mesh.tp, shape.embedding_parameters / mesh.tp
    tables = size * (table if shape.family == GPT else 2 * table)
    shards = mesh.dp_shard > 1
    num_gathered = 1 + shards + (shards and batching.recompute is not Recompute.NONE)
    return (
        tables,
        tables + num_gathered * size * layer,
        tables + (1 + shards) * size * layer + (size + BYTES_FP32) * layer,
    )
