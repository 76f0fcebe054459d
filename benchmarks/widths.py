"""Floating-point operations per second of decoders of several widths, on one thread of a CPU.

    python benchmarks/widths.py [--seconds 5] [--rounds 3]

Each width trains forward and backward passes for a while, and the widths take turns in each round. The speed of width h
is fitted by F / (1 + w / h): F is the speed of a very wide decoder, w the width with half of it. The estimate of a run
uses w for widths that it has not measured (`trainyard.planning.estimate.work`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import checkout  # noqa: F401  # finds the imports below
import torch
from torch.nn.functional import cross_entropy

from trainer.decoder_config import GPTConfig
from trainer.models.gpt import GPT
from trainyard.planning.shapes import TRAINYARD, ModelShape

WIDTHS = (64, 96, 128, 192, 256, 384)
SIZE = {"num_layers": 2, "num_heads": 2, "sequence_length": 128, "vocab_size": 257}
BATCH = 8


def main() -> int:
    """Print a row per width, and the fit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each width in a round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    speeds: dict[int, list[float]] = {width: [] for width in WIDTHS}
    for _ in range(options.rounds):
        for width in WIDTHS:
            speeds[width].append(flops_per_s(width, options.seconds))
    medians = {width: statistics.median(each) for width, each in speeds.items()}
    peak, half_speed_width = fit_speeds(medians)
    print("| width | GFLOPS | fit |\n|---|---|---|")
    for width, speed in medians.items():
        print(
            f"| {width} | {speed / 1e9:.1f} | {peak / (1 + half_speed_width / width) / 1e9:.1f} |"
        )
    print(f"F = {peak / 1e9:.0f} GFLOPS, w = {half_speed_width:.0f}")
    return 0


def flops_per_s(width: int, seconds: float) -> float:
    """Return the operations per second of forward and backward passes of a decoder."""
    model = GPT(GPTConfig(**SIZE, hidden_size=width))
    shape = ModelShape(**SIZE, hidden_size=width, family=TRAINYARD)
    tokens = torch.randint(SIZE["vocab_size"], (BATCH, SIZE["sequence_length"]))
    num_passes, began = -1, time.perf_counter()
    while time.perf_counter() - began < seconds:
        cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        if num_passes < 0:  # the first pass allocates
            began = time.perf_counter()
        num_passes += 1
    elapsed = time.perf_counter() - began
    return num_passes * tokens.numel() * shape.flops_per_token / elapsed


def fit_speeds(speeds: dict[int, float]) -> tuple[float, float]:
    """Return F and w of speed = F / (1 + w / h), by least squares of relative errors of 1 / speed = a + b / h."""
    rows = torch.tensor([[speed, speed / width] for width, speed in speeds.items()]).double()
    ones = torch.ones(len(rows), 1).double()
    a, b = torch.linalg.lstsq(rows, ones).solution.flatten().tolist()
    return 1 / a, b / a


if __name__ == "__main__":
    sys.exit(main())
