"""Speed and memory of train_ddp.py and train_fsdp.py on one GPU, beside a bare loop and the planner's estimate.

    python benchmarks/gpu_training.py [--steps 60] [--only NAME ...] [--instance ml.p5.4xlarge]

Each row is one run of a script in its own process. The tokens are random, so the losses mean nothing.

| Column | Meaning |
|---|---|
| tokens/s | median over the steps after the tenth |
| of bare | speed relative to a bare loop: the same model, precision and optimizer; no data loader, no metrics |
| MFU | operations of the model per second, divided by the GPU's bf16 peak in the catalogue |
| planned | the planner's tokens/s and GiB for the instance type, whose GPU must be the one of this machine |
| GiB | peak of the tensors in GPU memory, which includes the checkpoint at the end |

The last line evaluates the trained model of the first bf16 row by evaluate.py.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import checkout  # noqa: F401  # finds the imports below
import torch
from gpu_jobs import ScriptRun, device_name, write_tokens
from torch.nn.functional import cross_entropy

from trainer.models import build
from trainer.models.gpt import GPTConfig
from trainer.optimization import make_optimizer
from trainyard.catalog.hardware import hardware
from trainyard.planning.activations import Batching, Recompute
from trainyard.planning.compute import Cluster, step_time
from trainyard.planning.memory import memory_use
from trainyard.planning.mesh import Mesh
from trainyard.planning.shapes import TRAINYARD, ModelShape

VOCABULARY, SEQUENCE, WARM_UP = 32_768, 2048, 10
SIZES = {
    "350M": {"num_layers": 24, "hidden_size": 1024, "num_heads": 16},
    "1.3B": {"num_layers": 24, "hidden_size": 2048, "num_heads": 16},
}
BATCHES = {"350M": (16, 8), "1.3B": (8, 4)}
"""Size -> samples of a step, and of a micro batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run: a model's size, and the hyperparameters that differ from the defaults."""

    size: str = "350M"
    script: str = "train_ddp.py"
    hp: dict[str, Any] = field(default_factory=dict)

    @property
    def precision(self) -> str:
        """Return the precision of matrix products."""
        return self.hp.get("precision", "bf16")

    @property
    def is_compiled(self) -> bool:
        """Return whether the model is compiled."""
        return self.hp.get("compile", "true") == "true"


ROWS = {
    "350M, defaults (bf16, compiled)": Row(),
    "350M, bf16, eager": Row(hp={"compile": "false"}),
    "350M, fp32 with TF32, compiled": Row(hp={"precision": "fp32"}),
    "350M, bf16, eager, no statistics": Row(hp={"compile": "false", "statistics": "off"}),
    "350M, bf16, eager, a checkpoint every 10 steps": Row(
        hp={"compile": "false", "checkpoint_interval": 10}
    ),
    "350M, bf16, eager, recomputed selectively": Row(
        script="train_fsdp.py", hp={"activation_checkpointing": "selective", "compile": "false"}
    ),
    "350M, bf16, eager, recomputed fully": Row(
        script="train_fsdp.py", hp={"activation_checkpointing": "full", "compile": "false"}
    ),
    "1.3B, defaults": Row(size="1.3B"),
    "1.3B, bf16, eager": Row(size="1.3B", hp={"compile": "false"}),
}


def main() -> int:
    """Run the rows; return 0 if every run has ended well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--only", nargs="*", help="names of rows; without it, all")
    parser.add_argument("--instance", default="ml.p5.4xlarge", help="instance type of the plan")
    parser.add_argument("--without-bare", action="store_true", help="run no bare loops")
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        print(json.dumps(measure_bare(options.bare, options.steps)))
        return 0
    names = options.only if options.only is not None else list(ROWS)
    print(f"{device_name()}, torch {torch.__version__}, {options.steps} steps\n")
    print("| run | tokens/s | of bare | MFU | planned | GiB | planned | to the first step, s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    bare: dict[tuple[str, str, bool], float] = {}
    all_ended, evaluated = True, None
    with tempfile.TemporaryDirectory(prefix="gpu-training-") as folder:
        data = write_tokens(Path(folder) / "data", vocab_size=VOCABULARY, num_rows=128)
        for number, name in enumerate(names):
            row = ROWS[name]
            base_dir = Path(folder) / str(number)
            run = ScriptRun(
                base_dir=base_dir, data=data, script=row.script,
                hyperparameters=settings(row, options.steps),
            )  # fmt: skip
            codes = run.run()
            if codes != [0]:
                all_ended = False
                print(f"| {name} | exit codes {codes} |\n\n{run.log()[-3000:]}", flush=True)
                continue
            key = (row.size, row.precision, row.is_compiled)
            if key not in bare and not options.without_bare:
                bare[key] = bare_speed(name, options.steps)
            print(described(name, row, run, bare.get(key), options.instance), flush=True)
            if evaluated is None and row.precision == "bf16":
                evaluated = evaluation(run, data)
            shutil.rmtree(base_dir)  # gigabytes of checkpoints
        print(f"\n{evaluated}")
    return 0 if all_ended else 1


def settings(row: Row, steps: int) -> dict[str, Any]:
    """Return the hyperparameters of a row."""
    global_batch, micro_batch = BATCHES[row.size]
    return {
        **SIZES[row.size], "sequence_length": SEQUENCE, "global_batch_size": global_batch,
        "micro_batch_size": micro_batch, "max_steps": steps, "log_interval": 1,
        "eval_interval": 0, "eval_batches": 2, "checkpoint_interval": -1, "learning_rate": 1e-4,
        **row.hp,
    }  # fmt: skip


def described(name: str, row: Row, run: ScriptRun, bare: float | None, instance: str) -> str:
    """Return the row of the table; `bare` is the bare loop's tokens per second, None if not measured."""
    steps = run.events("step")
    speed = statistics.median(each["tokens_per_second"] for each in steps[WARM_UP:])
    memory = max(run.summary()["peak_memory_bytes"]) / 2**30
    shape = shape_of(row.size)
    global_batch, micro_batch = BATCHES[row.size]
    batching = Batching(
        micro_batch_size=micro_batch,
        num_micro_batches=global_batch // micro_batch,
        precision=row.precision,
        recompute=Recompute(row.hp.get("activation_checkpointing", "none")),
        is_compiled=row.is_compiled,
    )
    there = hardware()[instance]
    cluster = Cluster(hardware=there, instance_count=1)
    planned = step_time(shape, Mesh(), batching, cluster, global_batch_size=global_batch)
    planned_speed = global_batch * SEQUENCE / planned.total
    planned_gib = memory_use(shape, Mesh(), batching).total / 2**30
    peak = there.bf16_tflops
    assert peak is not None
    mfu = speed * shape.flops_per_token / peak / 1e12
    first = steps[0]["time"] - run.events("start")[0]["time"]
    of_bare = f"{speed / bare:.2f}" if bare else ""
    return (
        f"| {name} | {speed:,.0f} | {of_bare} | {mfu:.1%} | {planned_speed:,.0f} | {memory:.1f} "
        f"| {planned_gib:.1f} | {first:.0f} |"
    )


def shape_of(size: str) -> ModelShape:
    """Return the planner's shape of a model."""
    return ModelShape(
        **SIZES[size], vocab_size=VOCABULARY, sequence_length=SEQUENCE, family=TRAINYARD
    )


def bare_speed(name: str, steps: int) -> float:
    """Return the tokens per second of the bare loop of a row, in its own process."""
    command = [sys.executable, __file__, "--bare", name, "--steps", str(steps)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure_bare(name: str, steps: int) -> float:
    """Return the tokens per second of a bare loop with the model, precision and batches of a row."""
    row = ROWS[name]
    torch.set_float32_matmul_precision("high")
    config = GPTConfig(**SIZES[row.size], vocab_size=VOCABULARY, sequence_length=SEQUENCE)
    model = build(config.to_dict()).to("cuda")
    optimizer = make_optimizer(model, weight_decay=0.1)
    forward = torch.compile(model) if row.is_compiled else model
    global_batch, micro_batch = BATCHES[row.size]
    tokens = torch.randint(VOCABULARY, (micro_batch, SEQUENCE + 1), device="cuda")
    casts = row.precision == "bf16"
    times = []
    for _ in range(steps):
        for _ in range(global_batch // micro_batch):
            with torch.autocast("cuda", dtype=torch.bfloat16) if casts else nullcontext():
                logits = forward(tokens[:, :-1])
                loss = cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
            (loss * micro_batch / global_batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        times.append(event)
    torch.cuda.synchronize()
    seconds = [
        before.elapsed_time(after) / 1000
        for before, after in zip(times[WARM_UP:], times[WARM_UP + 1 :], strict=False)
    ]
    return global_batch * SEQUENCE / statistics.median(seconds)


def evaluation(run: ScriptRun, data: Path) -> str:
    """Evaluate the run's model by evaluate.py; return a line that describes it."""
    inputs = run.base_dir / "processing" / "input"
    inputs.mkdir(parents=True)
    (inputs / "model").symlink_to(run.base_dir / "model")
    for channel in ("test", "index"):
        (inputs / channel).symlink_to(data / channel)
    evaluate = ScriptRun(base_dir=run.base_dir, data=data, script="evaluate.py", hyperparameters={})
    began = time.monotonic()
    codes = evaluate.run()
    seconds = time.monotonic() - began
    if codes != [0]:
        return f"evaluate.py: exit codes {codes}\n{evaluate.log()[-3000:]}"
    path = run.base_dir / "processing" / "output" / "evaluation" / "evaluation.json"
    report = json.loads(path.read_text())
    return (
        f"evaluate.py: test loss {report['metrics']['test_loss']:.4f} in {report['measured']['precision']}, "
        f"validation loss of the training {run.summary()['validation_loss']:.4f}; {seconds:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
