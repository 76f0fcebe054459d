"""A small decoder-only language model in plain TensorFlow: learned positions, pre-norm blocks, tied embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Mapping

EPSILON = 1e-5
INITIAL_STD = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """The sizes of the model."""

    vocab_size: int
    sequence_length: int
    num_layers: int
    num_heads: int
    hidden_size: int


def initial_weights(shape: DecoderShape, *, seed: int) -> dict[str, np.ndarray]:
    """Return the weights before training; the same in every process of a run."""
    generator = np.random.default_rng(seed)
    h = shape.hidden_size

    def matrix(*size: int) -> np.ndarray:
        return generator.normal(0, INITIAL_STD, size).astype(np.float32)

    weights = {"tokens": matrix(shape.vocab_size, h), "positions": matrix(shape.sequence_length, h)}
    for layer in range(shape.num_layers):
        weights |= {
            f"{layer}.attention.norm": np.ones(h, np.float32),
            f"{layer}.attention.in": matrix(h, 3 * h),
            f"{layer}.attention.out": matrix(h, h),
            f"{layer}.mlp.norm": np.ones(h, np.float32),
            f"{layer}.mlp.in": matrix(h, 4 * h),
            f"{layer}.mlp.out": matrix(4 * h, h),
        }
    return weights | {"norm": np.ones(h, np.float32)}


def loss_of(shape: DecoderShape, weights: Mapping[str, tf.Variable], block: tf.Tensor) -> tf.Tensor:
    """Return the mean cross-entropy, in nats, of the predictions of each next token.

    `block` has token ids in the shape (batch, time + 1). The inputs are all its tokens but the last of each
    row, the targets all but the first.
    """
    inputs, targets = block[:, :-1], block[:, 1:]
    x = tf.gather(weights["tokens"], inputs) + weights["positions"][: tf.shape(inputs)[1]]
    for layer in range(shape.num_layers):
        x += _attention(shape, weights, layer, _norm(x, weights[f"{layer}.attention.norm"]))
        x += _mlp(weights, layer, _norm(x, weights[f"{layer}.mlp.norm"]))
    logits = tf.einsum(
        "bth,vh->btv", _norm(x, weights["norm"]), tf.convert_to_tensor(weights["tokens"])
    )
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)
    return tf.reduce_mean(losses)


def _attention(
    shape: DecoderShape, weights: Mapping[str, tf.Variable], layer: int, x: tf.Tensor
) -> tf.Tensor:
    batch, time = tf.shape(x)[0], tf.shape(x)[1]
    width = shape.hidden_size // shape.num_heads
    joined = tf.einsum("bth,hk->btk", x, tf.convert_to_tensor(weights[f"{layer}.attention.in"]))
    split = tf.reshape(joined, (batch, time, 3, shape.num_heads, width))
    query, key, value = tf.unstack(split, axis=2)
    scores = tf.einsum("bqnw,bknw->bnqk", query, key) / np.sqrt(width).astype(np.float32)
    causal = tf.linalg.band_part(tf.ones((time, time)), -1, 0)
    shares = tf.nn.softmax(scores + (1 - causal) * -1e9)
    mixed = tf.reshape(
        tf.einsum("bnqk,bknw->bqnw", shares, value), (batch, time, shape.hidden_size)
    )
    return tf.einsum("bth,hk->btk", mixed, tf.convert_to_tensor(weights[f"{layer}.attention.out"]))


def _mlp(weights: Mapping[str, tf.Variable], layer: int, x: tf.Tensor) -> tf.Tensor:
    inner = tf.einsum("bth,hk->btk", x, tf.convert_to_tensor(weights[f"{layer}.mlp.in"]))
    outer = tf.convert_to_tensor(weights[f"{layer}.mlp.out"])
    return tf.einsum("btk,kh->bth", tf.nn.gelu(inner), outer)


def _norm(x: tf.Tensor, scale: tf.Variable) -> tf.Tensor:
    """Return x with a root mean square of 1, times the scale (Zhang and Sennrich 2019)."""
    return x * tf.math.rsqrt(tf.reduce_mean(x * x, axis=-1, keepdims=True) + EPSILON) * scale
