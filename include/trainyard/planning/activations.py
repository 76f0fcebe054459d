"""Activation memory: bytes that layers and the loss keep for the backward pass.

Source: Korthikanti et al. 2022, sections 4 and 5. The letters are theirs: s, b, h, a, t, L and V are sequence length,
micro batch size, hidden size, heads, tensor-parallel ranks, layers and vocabulary size.
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
    """Activations that are recomputed in the backward pass instead of kept."""

    NONE = "none"
    SELECTIVE = "selective"
    """With eager attention: the scores (Korthikanti, section 5). With flash attention: everything except each layer's
    input, and the outputs of attention and of every second matrix product (torchtitan's `selective op`)."""
    FULL = "full"
    """Everything except the input of each layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Micro batches, precision, recomputation and compilation of one optimizer step.

    Attributes:
        micro_batch_size: sequences per micro batch.
        num_micro_batches: micro batches per rank and optimizer step.
        precision: `bf16` or `fp32`.
        recompute: activations that are recomputed.
        is_compiled: whether torch.compile is on.
    """

    micro_batch_size: int
    num_micro_batches: int
    precision: str
    recompute: Recompute
    is_compiled: bool = True

    @property
    def bytes_per_value(self) -> int:
        """Bytes per value of activations, and of the copies of weights for matrix products."""
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
    """Return the bytes that one layer keeps per rank for its backward pass.

    The formulas depend on the model family. They give bytes, with 2 bytes per value unless noted. `is_cast` is
    explained at `residual_bytes`.

    **gpt** (Korthikanti et al. 2022 with sequence parallelism):

    - with the scores of eager attention: sbh (34/t + 5as/(ht)), equation 4
    - without the scores: 34 sbh/t, equation 5
    - with full recomputation, which keeps the layer's input alone: 2 sbh/t

    Worked: GPT-3, b = 1, t = 8, without the scores: 34 x 2048 x 12,288 / 8 = 106,954,752.

    **llama** (counted in the same way, without dropout): sbh (12 + 4 k/h + 8 f/h) for t = 1. Here k is the
    width of the keys and f the inner width of the feed-forward part. Worked: Llama 3 8B, b = 1: 41 sbh =
    1.376e9. The terms are:

    - the inputs of two norms: 4
    - query, key and value: 2 + 4 k/h
    - the output of attention: 2
    - the inputs of the matrix products of attention and feed-forward: 4
    - gate, up, silu and product of SwiGLU: 8 f/h

    **trainyard** (measured): sbh (34 + 8 f/h) for t = 1. The inputs and outputs of norms are always in
    fp32, and the rest has the precision of the matrix products. The terms are:

    - the inputs and outputs of two norms: 16
    - three inputs of matrix products: 6
    - the output of the joint matrix product for query, key and value: 6
    - the rotated query and the rotated key: 4
    - the output of attention: 2
    - SwiGLU: 8 f/h

    With tp > 1, the formulas of llama and trainyard are divided by t. Without recomputation, torch's DTensor
    also keeps two inputs gathered over the sequence for these families, which adds 2 sbh (1 - 1/t) values. gpt
    does not keep them: it gathers them again in the backward pass (section 4.2.2). Worked for the addition:
    fp32, b = 4, s = h = 128, t = 4: 524,288 x 0.75 = 393,216 bytes.
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
    """Return the bytes of one value of the residual stream.

    Under autocast, the residual stream of trainyard's decoder is fp32. With FSDP2 (`is_cast`), it has the
    precision of the matrix products, because FSDP2 casts parameters and layer inputs. Measured for a layer
    input of 131,072 values: 262,144 bytes in bf16, 524,288 in fp32.
    """
    return BYTES_FP32 if shape.family == TRAINYARD and not is_cast else bytes_per_value


def _layer_bytes(shape: ModelShape, bytes_per_value: int) -> float:
    """Return the bytes that a layer keeps per token and channel, without attention scores."""
    k, f = shape.kv_size / shape.hidden_size, shape.inner_size / shape.hidden_size
    if shape.family == GPT:
        return 17.0 * bytes_per_value
    if shape.family == TRAINYARD:
        return 4 * BYTES_FP32 + bytes_per_value * (9 + 4 * f)
    return bytes_per_value * (6 + 2 * k + 4 * f)


def _selective_values(shape: ModelShape) -> float:
    """Return the number of values kept per token and channel with selective recomputation and flash attention.

    The layer keeps its input, the output of attention, and the output of every second matrix product, starting
    with the first. The matrix products, and the ones whose output is kept, are:

    - llama: query, key, value, output, gate, up and down. It keeps query, value, gate and down.
    - gpt: query-key-value, output, up and down. It keeps query-key-value and up.
    - trainyard: query-key-value, output, gate-up and down. It keeps query-key-value and gate-up.

    Worked examples, in which the first term, 2, counts the layer's input and the output of attention:

    - Llama 3 8B: 2 + 1 + 0.25 + 3.5 + 1 = 7.75
    - trainyard's decoder of 128 channels and inner width 352: 2 + 3 + 5.5 = 10.5
    """
    k, f = shape.kv_size / shape.hidden_size, shape.inner_size / shape.hidden_size
    if shape.family == TRAINYARD:
        return 2 + 1 + 2 * k + 2 * f
    if shape.family == GPT:
        return 2 + 1 + 2 * k + f
    return 2 + 1 + k + f + 1


def _score_values(shape: ModelShape) -> float:
    """Return the number of attention values kept per token and channel, before the division by tp.

    gpt keeps 5 bytes per attention score: 2 for the softmax, 1 for dropout's mask and 2 for dropout's output.
    That is 5as/(2h) values of 2 bytes. The other families keep one value per score: as/h.
    """
    kept = 2.5 if shape.family == GPT else 1.0
    return kept * shape.num_heads * shape.sequence_length / shape.hidden_size


def logits_bytes(
    shape: ModelShape, *, micro_batch_size: int, tp: int, bytes_per_value: int = 2
) -> float:
    """Return the bytes of the logits during the backward pass of the loss: (2 + 12) sbV/t in bf16.

    The 2 bytes are a logit in the precision of the matrix products. The 12 bytes are three fp32 values: the
    log-softmax, the gradient of the loss and the gradient of the log-softmax. Worked: Llama 3 8B, b = 2, bf16:
    14 x 8192 x 2 x 128,256 = 2.94e10.
    """
    values = float(shape.sequence_length * micro_batch_size * shape.vocab_size) / tp
    return values * (bytes_per_value + 3 * BYTES_FP32)
