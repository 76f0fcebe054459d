"""Bytes that layers and the loss keep for the backward pass.

Source: Korthikanti et al. 2022, sections 4 and 5, whose letters are used: s, b, h, a, t, L, V are sequence, micro
batch, hidden size, heads, tensor-parallel ranks, layers and vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from trainyard.planning.shapes import EAGER, GPT, TRAINYARD

if TYPE_CHECKING:
    from trainyard.planning.shapes import ModelShape

BYTES_FP32 = 4


class Recompute(StrEnum):
    """Activations that the backward pass computes again instead of keeping them."""

    NONE = "none"
    SELECTIVE = "selective"
    """Eager attention: the scores (Korthikanti, section 5). Flash: all but attention's output and half of the matrix
    products' (torchtitan's `selective op`)."""
    FULL = "full"
    """Everything but each layer's input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Division and arithmetic of one optimizer step.

    Samples of a micro batch, micro batches of a rank, precision, recomputation, and whether torch.compile is on.
    """

    micro_batch_size: int
    num_micro_batches: int
    precision: str
    recompute: Recompute
    is_compiled: bool = True

    @property
    def bytes_per_value(self) -> int:
        """Of activations and of the copies of weights that matrix products use."""
        return 4 if self.precision == "fp32" else 2


def layer_activation_bytes(
    shape: ModelShape,
    *,
    micro_batch_size: int,
    tp: int,
    recompute: Recompute,
    bytes_per_value: int = 2,
    is_cast: bool = False,
) -> float:
    """Return what one layer keeps for its backward pass; `is_cast` as in `residual_bytes`.

    gpt, of Korthikanti et al. 2022 with sequence parallelism: sbh(34/t + 5as/(ht)) with eager attention (equation 4),
    34 sbh/t without the scores (equation 5), 2 sbh/t for the layer's input alone. Worked: GPT-3, b = 1, t = 8,
    selective: 34 x 2048 x 12,288 / 8 = 106,954,752.

    llama, by the same account without dropout: two norms keep their inputs (4), query, key and value (2 + 4 k/h),
    attention its output (2), the products of attention and feed-forward their inputs (4), SwiGLU gate, up, silu and
    their product (8 f/h): sbh (12 + 4 k/h + 8 f/h), k the width of the keys, f the inner one. Worked: Llama 3 8B,
    b = 1: 41 sbh = 1.376e9.

    trainyard: two norms keep input and output in fp32 (16), and in the products' precision their three inputs, query,
    key and value once together and two of them turned, attention's output (18) and SwiGLU (8 f/h): measured.

    Over tp ranks, torch's DTensor keeps two of the inputs as it gathered them from the sequence's parts, where gpt's
    authors gather again (section 4.2.2): 2 sbh (1 - 1/t) values more. Worked: fp32, b = 4, s = h = 128, t = 4:
    524,288 x 0.75 = 393,216 bytes.
    """
    values = float(shape.sequence_length * micro_batch_size * shape.hidden_size) / tp
    if recompute is Recompute.FULL:
        return values * residual_bytes(shape, bytes_per_value, is_cast=is_cast)
    scores = _score_values(shape) * bytes_per_value if shape.attention == EAGER else 0.0
    if recompute is Recompute.NONE:
        gathered = 0.0 if shape.family == GPT else 2.0 * (tp - 1) * bytes_per_value
        return values * (_layer_bytes(shape, bytes_per_value) + scores + gathered)
    if shape.attention == EAGER:
        return values * _layer_bytes(shape, bytes_per_value)
    return values * _selective_values(shape) * bytes_per_value


def residual_bytes(shape: ModelShape, bytes_per_value: int, *, is_cast: bool) -> int:
    """Return the bytes of one value between layers.

    Under autocast trainyard's residual stream is fp32. FSDP2 casts parameters and what enters a layer (`is_cast`):
    then it is in the products' precision. Measured: bf16, 262,144 bytes an input where fp32 has 524,288.
    """
    return BYTES_FP32 if shape.family == TRAINYARD and not is_cast else bytes_per_value


def _layer_bytes(shape: ModelShape, bytes_per_value: int) -> float:
    """Return the bytes that a token and channel keep, without attention scores."""
    k, f = shape.kv_size / shape.hidden_size, shape.inner_size / shape.hidden_size
    if shape.family == GPT:
        return 17.0 * bytes_per_value
    if shape.family == TRAINYARD:
        return 4 * BYTES_FP32 + bytes_per_value * (9 + 4 * f)
    return bytes_per_value * (6 + 2 * k + 4 * f)


def _selective_values(shape: ModelShape) -> float:
    """Return the values kept of attention's output, every second matrix product's, and the layer's input.

    In their order, the first of two: llama has query, key, value, output, gate, up, down, so that query, value, gate
    and down stay; gpt and trainyard have query, key and value together, and trainyard gate and up. Worked: Llama 3 8B:
    2 + 1 + 0.25 + 3.5 + 1 = 7.75 of the hidden size; our decoder of 128 channels: 2 + 3 + 5.5 = 10.5.
    """
    k, f = shape.kv_size / shape.hidden_size, shape.inner_size / shape.hidden_size
    if shape.family == TRAINYARD:
        return 2 + 1 + 2 * k + 2 * f
    if shape.family == GPT:
        return 2 + 1 + 2 * k + f
    return 2 + 1 + k + f + 1


def _score_values(shape: ModelShape) -> float:
    """Return 5as/2h at 2 bytes (softmax 2, dropout's mask 1 and output 2), or as/h without dropout."""
    kept = 2.5 if shape.family == GPT else 1.0
    return kept * shape.num_heads * shape.sequence_length / shape.hidden_size


def logits_bytes(
    shape: ModelShape, *, micro_batch_size: int, tp: int, bytes_per_value: int = 2
) -> float:
    """Return what the logits take while the loss goes backward, (2 + 12) sbV/t.

    The logits in the products' precision, their fp32 log-softmax, and the fp32 gradients of loss and log-softmax.
    Worked: Llama 3 8B, b = 2, bf16: 14 x 8192 x 2 x 128,256 = 2.94e10.
    """
    values = float(shape.sequence_length * micro_batch_size * shape.vocab_size) / tp
    return values * (bytes_per_value + 3 * BYTES_FP32)
