"""AdamW on TensorFlow variables, for any strategy. Source: Loshchilov and Hutter 2019, algorithm 2."""

from __future__ import annotations

import tensorflow as tf

BETA_1, BETA_2 = 0.9, 0.95
EPSILON = 1e-8


def update(
    weight: tf.Variable,
    gradient: tf.Tensor,
    first: tf.Variable,
    second: tf.Variable,
    learning_rate: tf.Tensor,
    step: tf.Tensor,
    *,
    weight_decay: float,
) -> None:
    """Update one variable, and its moments `first` and `second`, with its gradient.

    `step` counts from 1. Weight decay applies only to tensors with two or more axes.
    """
    first.assign(BETA_1 * first + (1 - BETA_1) * gradient)
    second.assign(BETA_2 * second + (1 - BETA_2) * gradient * gradient)
    mean = first / (1 - tf.pow(BETA_1, step))
    variance = second / (1 - tf.pow(BETA_2, step))
    decay = weight_decay if len(weight.shape) > 1 else 0.0
    weight.assign_sub(learning_rate * (mean / (tf.sqrt(variance) + EPSILON) + decay * weight))


def clipped(gradients: list[tf.Tensor], clip_norm: float) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Return the gradients scaled to a global norm of at most `clip_norm` (0: unchanged), and their original norm."""
    norm = tf.linalg.global_norm(gradients)
    if not clip_norm:
        return gradients, norm
    return list(tf.clip_by_global_norm(gradients, clip_norm, use_norm=norm)[0]), norm
