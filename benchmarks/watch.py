"""Processor time that `trainyard_watch` adds to the steps of a training loop without any other Trainyard code.

    python benchmarks/watch.py [--rounds 100]

One process and one thread train each model of benchmarks/emission.py twice: one copy is watched, one is not. Steps of
the two alternate: forward, backward, AdamW. The watched loop also reads its loss and writes the default statistics.
`mean` is the difference of the mean processor times, `median` the difference of the medians.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import checkout  # noqa: F401  # finds the imports below
import torch
from emission import gpt, mlp

from trainyard_watch import watch

if TYPE_CHECKING:
    from emission import Workload

WARM_UP = 5
AIMS = {"gpt": 1.0, "mlp": 3.0}  # percent of a step


def main() -> int:
    """Measure both models; return 0 if the limits are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds",
        type=int,
        default=100,
        help="pairs of steps of the gpt; the mlp takes 4 times as many",
    )
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| | step, CPU ms | watched, CPU ms more: mean, median | % of a step |")
    print("|---|---|---|---|")
    costs = {"gpt": measure(gpt(), gpt(), rounds), "mlp": measure(mlp(), mlp(), 4 * rounds)}
    for name, (step, mean, median) in costs.items():
        print(f"| {name} | {step:.2f} | {mean:.2f}, {median:.2f} | {100 * mean / step:.2f} |")
    return (
        0 if all(100 * mean / step < AIMS[name] for name, (step, mean, _) in costs.items()) else 1
    )


def measure(watched: Workload, bare: Workload, rounds: int) -> tuple[float, float, float]:
    """Return the CPU milliseconds of a bare step, and the difference of the watched step by mean and by median."""
    optimizers = [torch.optim.AdamW(each.model.parameters(), lr=1e-4) for each in (watched, bare)]
    times: list[list[float]] = [[], []]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SAGEMAKER_BASE_DIR"] = folder
        with (
            contextlib.redirect_stdout(sys.stderr),
            watch(watched.model, optimizers[0], max_steps=rounds + WARM_UP) as run,
        ):
            for number in range(rounds + WARM_UP):
                for place in (0, 1) if number % 2 else (1, 0):
                    began = time.process_time()
                    optimizers[place].zero_grad(set_to_none=True)
                    loss = (watched, bare)[place].loss()
                    loss.backward()
                    optimizers[place].step()
                    if place == 0:
                        run.step(loss=loss)
                    if number >= WARM_UP:
                        times[place].append(1000 * (time.process_time() - began))
    mean, median = (of(times[0]) - of(times[1]) for of in (statistics.fmean, statistics.median))
    return statistics.fmean(times[1]), mean, median


if __name__ == "__main__":
    sys.exit(main())
