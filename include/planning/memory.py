"""Bytes of one rank's accelerator, by part.

Sources: Rajbhandari et al. 2020 (ZeRO), section 3; Korthikanti et al. 2022, sections 4 and 5, whose letters are used:
s, b, h, a, t, L, V are sequence, micro batch, hidden size, heads, tensor-parallel ranks, layers and vocabulary.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from include.planning.shapes import EAGER, GPT, TRAINYARD

if TYPE_CHECKING:
    from include.planning.mesh import Mesh
    from include.planning.shapes import ModelShape

BYTES_FP32 = 4
BYTES_ADAMW = 8
"""Two fp32 moments of a parameter."""


class Recompute(StrEnum):
    """What the backward pass computes again instead of keeping it."""

    NONE = "none"
    SELECTIVE = "selective"
    """Eager attention: the scores (Korthikanti, section 5). Flash: all but attention's output and half of the matrix
    products' (torchtitan's `selective op`)."""
    FULL = "full"
    """Everything but each layer's input."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How one optimizer step is cut: samples of a micro batch, micro batches of a rank, precision, recomputation."""

    micro_batch_size: int
    num_micro_batches: int
    precision: str
    recompute: Recompute

    @property
    def bytes_per_value(self) -> int:
        """Of activations and of the copies of weights that matrix products use."""
        return 4 if self.precision == "fp32" else 2


def memory_use(shape: ModelShape, mesh: Mesh, batching: Batching) -> MemoryUse:
    """Return the bytes of the rank that needs most.

    States: fp32 weights, fp32 gradients and AdamW's two moments are 16 bytes for each parameter, as under torch's
    autocast and FSDP2's mixed precision, divided by tp and dp_shard. Worked: 8.03e9 parameters over 8 ranks of
    dp_shard: 4.02e9 of parameters, as much of gradients, 8.03e9 of optimizer.
    """
    own = stage_parameters(shape, mesh) / mesh.tp
    sharded = own / mesh.dp_shard
    activations, logits = _activations(shape, mesh, batching)
    return MemoryUse(
        parameters=BYTES_FP32 * sharded,
        gradients=BYTES_FP32 * sharded,
        optimizer=BYTES_ADAMW * sharded,
        activations=activations,
        buffers=logits + _weight_buffers(shape, mesh, batching, own),
    )


def stage_parameters(shape: ModelShape, mesh: Mesh) -> float:
    """Return the parameters of the largest pipeline stage: its layers, and one table (both without stages)."""
    layers = shape.num_layers / mesh.pp * shape.layer_parameters
    if mesh.pp == 1:
        return shape.num_parameters
    return layers + shape.embedding_parameters


def layer_activation_bytes(
    shape: ModelShape,
    *,
    micro_batch_size: int,
    tp: int,
    recompute: Recompute,
    bytes_per_value: int = 2,
) -> float:
    """Return what one layer keeps for its backward pass.

    gpt, of Korthikanti et al. 2022 with sequence parallelism: sbh(34/t + 5as/(ht)) with eager attention (equation 4),
    34 sbh/t without the scores (equation 5), 2 sbh/t for the layer's input alone. Worked: GPT-3, b = 1, t = 8,
    selective: 34 x 2048 x 12,288 / 8 = 106,954,752.

    llama, by the same account without dropout: two norms keep their inputs (4), query, key and value (2 + 4 k/h),
    attention its output (2), the products of attention and feed-forward their inputs (4), SwiGLU gate, up, silu and
    their product (8 f/h): sbh (12 + 4 k/h + 8 f/h), k the width of the keys, f the inner one. Worked: Llama 3 8B,
    b = 1: 41 sbh = 1.376e9.

    trainyard: two norms keep input and output in fp32 (16), and in the products' precision their three inputs, query,
    key and value once together and two of them turned, attention's output (18) and SwiGLU (8 f/h): measured.
    """
    values = float(shape.sequence_length * micro_batch_size * shape.hidden_size) / tp
    if recompute is Recompute.FULL:
        return values * (BYTES_FP32 if shape.family == TRAINYARD else bytes_per_value)
    scores = _score_values(shape) * bytes_per_value if shape.attention == EAGER else 0.0
    if recompute is Recompute.NONE:
        return values * (_layer_bytes(shape, bytes_per_value) + scores)
    if shape.attention == EAGER:
        return values * _layer_bytes(shape, bytes_per_value)
    return values * _selective_values(shape) * bytes_per_value


def _layer_bytes(shape: ModelShape, bytes_per_value: int) -> float:
    """Return the bytes that a token and channel keep, without attention scores."""
    k, f = shape.kv_size / shape.hidden_size, shape.inner_size / shape.hidden_size
    if shape.family == GPT:
        return 17.0 * bytes_per_value
    if shape.family == TRAINYARD:
        return 4 * BYTES_FP32 + bytes_per_value * (9 + 4 * f)
    return bytes_per_value * (6 + 2 * k + 4 * f)


def _selective_values(shape: ModelShape) -> float:
    """Return the values kept of attention's output, every second matrix product's, and the layer's input."""
    k, f = shape.kv_size / shape.hidden_size, shape.inner_size / shape.hidden_size
    products = 1 + 2 * k + 1 + (1 if shape.family == GPT else 2) * f + 1
    return 2 + products / 2


def _score_values(shape: ModelShape) -> float:
    """Return 5as/2h at 2 bytes (softmax 2, dropout's mask 1 and output 2), or as/h without dropout."""
    kept = 2.5 if shape.family == GPT else 1.0
    return kept * shape.num_heads * shape.sequence_length / shape.hidden_size


def _activations(shape: ModelShape, mesh: Mesh, batching: Batching) -> tuple[float, float]:
    """Return the bytes of kept activations and of the logits, on the stage where both are most.

    Under 1F1B the first of p stages holds p micro batches of L/p layers, the last one (with the logits) one:
    Korthikanti, section 4.2.3. With recomputation one layer is whole again while its backward pass runs.
    """
    b, size = batching.micro_batch_size, batching.bytes_per_value

    def of_layer(recompute: Recompute) -> float:
        return layer_activation_bytes(
            shape, micro_batch_size=b, tp=mesh.tp, recompute=recompute, bytes_per_value=size
        )

    working = 0.0 if batching.recompute is Recompute.NONE else of_layer(Recompute.NONE)
    in_flight = min(mesh.pp, batching.num_micro_batches)
    layers = shape.num_layers / mesh.pp * of_layer(batching.recompute)
    values = shape.sequence_length * b * shape.hidden_size / mesh.tp
    head = values * (2 * BYTES_FP32 + size if shape.family == TRAINYARD else 2 * size)
    # train_fsdp.py gathers the logits of split layers on every rank, for a loss that is one process's.
    logits_tp = 1 if shape.family == TRAINYARD else mesh.tp
    logits = logits_bytes(shape, micro_batch_size=b, tp=logits_tp, bytes_per_value=size)
    first = in_flight * layers + working
    last = layers + head + working
    if mesh.pp == 1 or last + logits > first:
        return last, logits
    return first, 0.0


def logits_bytes(
    shape: ModelShape, *, micro_batch_size: int, tp: int, bytes_per_value: int = 2
) -> float:
    """Return what the logits take while the loss goes backward, (2 + 12) sbV/t.

    The logits in the products' precision, their fp32 log-softmax, and the fp32 gradients of loss and log-softmax.
    Worked: Llama 3 8B, b = 2, bf16: 14 x 8192 x 2 x 128,256 = 2.94e10.
    """
    values = float(shape.sequence_length * micro_batch_size * shape.vocab_size) / tp
    return values * (bytes_per_value + 3 * BYTES_FP32)


def _weight_buffers(shape: ModelShape, mesh: Mesh, batching: Batching, own: float) -> float:
    """Return the bytes of weights and gradients beside the states.

    Replicated: autocast's copies of all weights. Sharded: two gathered layers (one prefetched), the tables, which stay
    gathered from forward to backward, and one layer's gradients in both precisions.
    """
    size = batching.bytes_per_value
    if mesh.dp_shard == 1:
        return 0.0 if batching.precision == "fp32" else size * own
    layer, tables = shape.layer_parameters / mesh.tp, shape.embedding_parameters / mesh.tp
    kept = 2 * tables if mesh.pp == 1 and shape.family != GPT else tables
    return size * (2 * layer + kept) + (size + BYTES_FP32) * layer
