"""Recorder of a table of real trainings for benchmarks/tuning.py: `python benchmarks/tuning_table.py`.

An MLP with one hidden layer learns the 1,797 digits of scikit-learn by SGD with momentum for 27 epochs. It is trained
with 400 combinations of learning rate, hidden units, batch size and weight decay. The table has the validation error
(cross entropy, 30% held out) after each epoch. It takes about two minutes of CPU time.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TABLE = Path(__file__).with_name("tuning_table.json")
NUM_EPOCHS = 27
MOMENTUM = 0.9
CHOICES = {
    "learning_rate": [round(float(v), 5) for v in np.geomspace(0.0003, 1.0, 10)],
    "hidden": [4, 8, 16, 32, 64],
    "batch_size": [16, 64],
    "weight_decay": [0.0, 0.0001, 0.001, 0.01],
}


def main() -> None:
    """Train every combination and write the table."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    features, labels = digits.data[order] / 16, digits.target[order]
    split = int(0.7 * len(labels))
    data = (features[:split], labels[:split], features[split:], labels[split:])
    curves = {}
    for values in itertools.product(*CHOICES.values()):
        chosen = dict(zip(CHOICES, values, strict=True))
        indices = [CHOICES[name].index(value) for name, value in chosen.items()]
        curves[",".join(map(str, indices))] = [round(v, 4) for v in train(data, **chosen)]
    table = {"choices": CHOICES, "curves": curves}
    TABLE.write_text(json.dumps(table, separators=(",", ":")) + "\n")
    sys.stdout.write(f"{len(curves)} trainings in {TABLE.name}\n")


def train(
    data: tuple[np.ndarray, ...],
    *,
    learning_rate: float,
    hidden: int,
    batch_size: int,
    weight_decay: float,
) -> list[float]:
    """Return the validation errors after each epoch; a diverged training keeps 10."""
    features, labels, held_out, held_out_labels = data
    random = np.random.default_rng(1)
    weights = [
        random.normal(0, np.sqrt(2 / 64), (64, hidden)),
        np.zeros(hidden),
        random.normal(0, np.sqrt(2 / hidden), (hidden, 10)),
        np.zeros(10),
    ]
    velocity = [np.zeros_like(each) for each in weights]
    errors = []
    for _ in range(NUM_EPOCHS):
        order = random.permutation(len(labels))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            slopes = _slopes(weights, features[batch], labels[batch])
            for index, slope in enumerate(slopes):
                velocity[index] *= MOMENTUM
                velocity[index] -= learning_rate * (slope + weight_decay * weights[index])
                weights[index] += velocity[index]
        errors.append(_error(weights, held_out, held_out_labels))
    return errors


def _slopes(
    weights: list[np.ndarray], features: np.ndarray, labels: np.ndarray
) -> list[np.ndarray]:
    inner, shares = _forward(weights, features)
    shares[np.arange(len(labels)), labels] -= 1
    shares /= len(labels)
    back = (shares @ weights[2].T) * (inner > 0)
    return [features.T @ back, back.sum(0), inner.T @ shares, shares.sum(0)]


def _forward(weights: list[np.ndarray], features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    inner = np.maximum(features @ weights[0] + weights[1], 0)
    logits = inner @ weights[2] + weights[3]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return inner, shares / shares.sum(1, keepdims=True)


def _error(weights: list[np.ndarray], features: np.ndarray, labels: np.ndarray) -> float:
    _, shares = _forward(weights, features)
    error = float(-np.log(np.maximum(shares[np.arange(len(labels)), labels], 1e-12)).mean())
    return min(error, 10.0) if np.isfinite(error) else 10.0


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        main()
