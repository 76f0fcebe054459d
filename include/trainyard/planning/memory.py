"""Accelerator memory of one rank in bytes, by part: model states, activations and buffers at a step's peak.

Sources: Rajbhandari et al. 2020 (ZeRO), section 3; Korthikanti et al. 2022, section 4.2.3; FSDP2 and
`torch.distributed.pipelining.stage` of torch 2.13, which the training scripts use.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
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
"""Bytes per parameter of AdamW's two fp32 moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes at the peak of a step, on the rank that needs most.

    Attributes:
        parameters: fp32 weights.
        gradients: fp32 gradients.
        optimizer: AdamW's moments.
        activations: activations that are kept for the backward pass.
        buffers: cast copies of weights, gathered weights, gradients before their reduce-scatter, buffers of pipeline
            stages, and logits.
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float

    @property
    def total(self) -> float:
        """Sum of all parts."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.buffers

    def to_dict(self) -> dict[str, float]:
        """Return the parts and their total, in bytes."""
        return {**asdict(self), "total": self.total}


@lru_cache(maxsize=8192)  # clusters of other types have the same meshes
def memory_use(shape: ModelShape, mesh: Mesh, batching: Batching) -> MemoryUse:
    """Return the memory of the rank that needs most, in bytes by part.

    fp32 weights, fp32 gradients and AdamW's two moments are 16 bytes per parameter, as under torch's autocast
    and FSDP2's mixed precision. They are divided by tp and dp_shard. Worked: with 8.03e9 parameters, tp 1 and
    dp_shard 8, the weights take 4.02e9 bytes, the gradients 4.02e9 and the moments 8.03e9.
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
    """Return the number of parameters of the largest pipeline stage: its layers and one embedding table.

    Without pipeline stages, this is the number of all parameters.
    """
    layers = shape.num_layers / mesh.pp * shape.layer_parameters
    if mesh.pp == 1:
        return shape.num_parameters
    return layers + shape.embedding_parameters


def _moments(shape: ModelShape, mesh: Mesh, batching: Batching) -> Iterator[tuple[float, float]]:
    """Yield the bytes of activations and of buffers for each moment and stage that can have a step's peak.

    The stages are the first, the second and the last pipeline stage. The moments are:

    1. At the loss, on the last stage: the logits and the activations of all layers and of the head exist.
    2. In the backward pass of the stage's last layer: the layer's activations are recomputed, and the gradients
       of the activations inside of its MLP exist, too.
    3. After that layer: its activations are freed. The gradients of its weights exist both in the precision of
       the computation and in fp32, and are not scattered yet.
    """
    size, last = batching.bytes_per_value, mesh.pp - 1
    is_cast = max(mesh.tp, mesh.dp_shard, mesh.pp) > 1
    residual = residual_bytes(shape, size, is_cast=is_cast)
    values = shape.sequence_length * batching.micro_batch_size * shape.hidden_size / mesh.tp
    # train_fsdp.py gathers the logits over tensor-parallel ranks, because each rank calculates the whole loss.
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
        # The logits stay until the end of the backward pass, because the caller references them.
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
    """Return how many micro batches of a stage are between their forward and backward pass under 1F1B.

    With p pipeline stages, the first stage has at most p such micro batches, and the last stage has 1.

    Source: Korthikanti et al. 2022, section 4.2.3.
    """
    return min(mesh.pp - stage, batching.num_micro_batches)


def _passed(stage: int, mesh: Mesh, batching: Batching) -> int:
    """Return the number of tensors, each of one micro batch's hidden states, in the buffers of a stage.

    torch's PipelineStage allocates receive buffers for all micro batches of a step, not only for those in flight:

    - All stages but the first: an input buffer for each micro batch that is not in flight, and the gradient that is
      being sent. The inputs in flight are counted elsewhere, as kept inputs of the first layer.
    - All stages but the last: a gradient buffer for each micro batch, the outputs in flight, and the output that is
      still being sent.

    Worked: 4 micro batches and 2 stages, with 2 micro batches in flight in the first stage and 1 in the last. The first
    has 4 + 2 + 1 = 7 tensors, the last (4 - 1) + 1 = 4.
    """
    if mesh.pp == 1:
        return 0
    in_flight, num = _in_flight(stage, mesh, batching), batching.num_micro_batches
    received = num - in_flight + 1 if stage > 0 else 0
    sent = num + in_flight + 1 if stage < mesh.pp - 1 else 0
    return received + sent


def _weights(shape: ModelShape, mesh: Mesh, batching: Batching) -> tuple[float, float, float]:
    """Return the bytes of temporary weights and gradients at three moments of a step.

    The moments are those of `_moments`: at the loss, in the backward pass of the last layer, and after that
    layer.

    - Replicas (every rank has all weights): autocast's copies of all weights at each moment. If the precision
      is fp32, there are no copies.
    - Pipeline stages: all weights and gradients of the stage at each moment, because both stay whole during a
      step.
    - Weights sharded by FSDP2, or split by tensor parallelism:
      1. At the loss: the embedding tables, which stay gathered from the forward to the backward pass.
      2. In the last layer: the tables and the weights of the layer. FSDP2 also has the layer that it gathers
         next and, with recomputation, the buffer of the layer that it gathered before.
      3. After the last layer: the tables, the weights of one layer, or of two layers with FSDP2, and two copies
         of one layer's gradients. One copy has the precision of the computation, the other is fp32.
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
