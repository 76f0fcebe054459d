"""Processor time that the statistics add to the steps of a training.

    python benchmarks/emission.py [--rounds 300] [--model gpt|mlp]

One process with one thread trains two models, or the one of `--model`:

* a GPT of 6 layers, width 256 and vocabulary 4,096, with batches of 8 x 128;
* an MLP of 2.9 million parameters in 8 tensors, with batches of 128. It is the worst case: few operations per
  parameter.

Steps with statistics and steps with `statistics` off alternate, so that other load affects both equally. A step is that
of `trainer.training`: forward, backward, clipping, AdamW. Each kind counts its own steps, so that statistics of every
10th and 50th step are as frequent as in a run. `mean` is the difference of the mean processor times. `median` is the
difference of the medians, which leaves out statistics that are not written at every step. The cost of the host's
sampler, a thread, depends on time and not on steps. It is measured separately, as a share of one core.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import checkout  # noqa: F401  # finds the imports below
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.models.gpt import GPT, GPTConfig
from trainer.optimization import make_optimizer
from trainyard_watch.statistics.choice import Choice, default_collections
from trainyard_watch.statistics.emitter import Emitter
from trainyard_watch.statistics.host_samples import INTERVAL_S, HostSampler
from trainyard_watch.statistics.parts import PartWriter
from trainyard_watch.statistics.tensors import ModelTensors

WARM_UP, SAMPLES = 10, 40
AIMS = {"gpt": 1.0, "mlp": 3.0}  # percent of a step


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model, its input, and its loss."""

    model: nn.Module
    inputs: Tensor
    targets: Tensor

    def loss(self) -> Tensor:
        """Return the mean loss of the batch."""
        outputs = self.model(self.inputs)
        return functional.cross_entropy(outputs.flatten(0, -2), self.targets.flatten())


def gpt() -> Workload:
    """Return the GPT and a batch of 8 x 128 tokens."""
    config = GPTConfig(
        vocab_size=4096, num_layers=6, num_heads=8, hidden_size=256, sequence_length=128
    )
    tokens = torch.randint(4096, (8, 129))
    return Workload(model=GPT(config), inputs=tokens[:, :-1], targets=tokens[:, 1:])


def mlp() -> Workload:
    """Return the perceptron and a batch of 128 rows."""
    widths = (784, 1024, 1024, 1024, 10)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    rows, classes = torch.randn(128, 784), torch.randint(10, (128,))
    return Workload(model=nn.Sequential(*layers[:-1]), inputs=rows, targets=classes)


def main() -> int:
    """Measure the requested models; return 0 if the limits are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300, help="pairs of steps")
    parser.add_argument("--model", choices=("gpt", "mlp"), help="only one of the two")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(
        "| | step, CPU ms | with statistics, CPU ms more: mean, median | % of a step | kB a step |"
    )
    print("|---|---|---|---|---|")
    is_met = True
    for name in [options.model] if options.model else ["gpt", "mlp"]:
        is_met &= measure(name, {"gpt": gpt, "mlp": mlp}[name](), options.rounds) < AIMS[name]
    measure_sampler()
    return 0 if is_met else 1


def measure(name: str, work: Workload, rounds: int) -> float:
    """Print one line of the table; return the cost in percent of a step."""
    tensors = ModelTensors(work.model)
    optimizer = make_optimizer(work.model, weight_decay=0.1)
    for group in optimizer.param_groups:
        group["lr"] = 1e-4
    with tempfile.TemporaryDirectory() as folder:
        collections = default_collections(len(tensors.names))
        writing = Emitter(tensors, work.model, choice=Choice(collections=collections))
        writing.writer = PartWriter(Path(folder), header=header(writing))
        silent = Emitter(tensors, None, choice=Choice(is_on=False))
        costs: dict[Emitter, list[float]] = {writing: [], silent: []}
        for number in range(1 - WARM_UP, rounds + 1):
            for emitter in (writing, silent) if number % 2 else (silent, writing):
                began = time.process_time()
                take_step(work, tensors, optimizer, emitter, max(number, 1))
                if number > 0:
                    costs[emitter].append(1000 * (time.process_time() - began))
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / rounds / 1000
    step = statistics.fmean(costs[silent])
    more = statistics.fmean(costs[writing]) - step
    median = statistics.median(costs[writing]) - statistics.median(costs[silent])
    percent = 100 * more / step
    print(
        f"| {name}, {sum(tensors.num_elements) / 1e6:.1f} million parameters in {len(tensors.names)} tensors "
        f"| {step:.2f} | {more:.2f}, {median:.2f} | {percent:.2f} | {size:.1f} |",
        flush=True,
    )
    return percent


def header(emitter: Emitter) -> dict[str, Any]:
    """Return the header of the statistics file."""
    return {"format": "trainyard-statistics", "rank": 0, "attempt": 1, "tensors": emitter.listed}


def take_step(
    work: Workload,
    tensors: ModelTensors,
    optimizer: torch.optim.Optimizer,
    emitter: Emitter,
    step: int,
) -> None:
    """Take one step as `trainer.training.Training` does."""
    emitter.begin_step(step)
    loss = work.loss()
    loss.backward()
    total, norm = emitter.measure()
    tensors.clip(1.0, total)
    emitter.before_update()
    optimizer.step()
    emitter.after_update()
    optimizer.zero_grad(set_to_none=True)
    seconds = dict.fromkeys(
        ("step_seconds", "data_wait_seconds", "forward_seconds", "backward_seconds",
         "optimizer_seconds", "local_seconds", "communication_seconds"), 0.123456789,
    )  # fmt: skip
    emitter.end_step(
        loss=loss.item(), learning_rate=1e-4, gradient_norm=norm, units_per_second=1e4, **seconds
    )


def measure_sampler() -> None:
    """Print the processor time of the thread that samples the host, per sample."""
    taken: list[dict[str, Any]] = []
    interval = 0.02
    began = time.process_time()
    sampler = HostSampler(taken.append, pids=[1], disk=Path("/"), interval_s=interval)
    while len(taken) < SAMPLES:
        time.sleep(interval)
    sampler.close()
    each = 1000 * (time.process_time() - began) / len(taken)
    share = each / 1000 / INTERVAL_S
    print(f"\nsample of the host: {each:.2f} CPU ms, every {INTERVAL_S:g} s: {share:.2%} of a core")


if __name__ == "__main__":
    sys.exit(main())
