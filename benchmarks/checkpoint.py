"""Cost of checkpoints: this project's saver compared with torch.save and torch's distributed checkpoints.

    python benchmarks/checkpoint.py [--rounds 5] [--hidden-size 128 --num-layers 4]
    python benchmarks/checkpoint.py --whole [--steps 400]

The first form has one model and optimizer in one process. The savers save the same state in turns, while training
continues with real steps of the model:

* trainyard: the saver of training_scripts/: copy to buffers, then write, hash and fsync on a thread, manifest last;
* torch.save: one blocking call without fsync and checksum; and the same with fsync;
* dcp.save, dcp.async_save: torch.distributed.checkpoint with its defaults, one rank.

| Column | Meaning |
|---|---|
| `stall` | time for which the call blocks training |
| `own CPU` | processor time of the call |
| `other CPU` | processor time of all other threads until the checkpoint is complete, which training may lose |
| `there` | time until the checkpoint is complete |

On a busy machine only the processor times are reliable. The second form trains the default model on two ranks, in
turns with checkpoints at the chosen interval and without checkpoints. It prints the checkpoints' share of training
time in two ways: as measured by the run (stalls, and all processor time of the writer), and as the difference of whole
runs, which needs an idle machine.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkout import SCRIPTS

CHANNELS = ("train", "validation", "index")
WITH, WITHOUT = 0, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCost:
    """One checkpoint: seconds, and bytes on disk."""

    stall_s: float
    stall_cpu_s: float
    other_cpu_s: float
    there_s: float
    num_bytes: int


def main() -> int:
    """Run the requested comparison; return the exit status."""
    options = _parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="checkpoint-", dir=options.folder) as folder:
        if options.whole:
            compare_runs(Path(folder), rounds=options.rounds, steps=options.steps)
        else:
            compare_savers(Path(folder), options)
    return 0


def compare_savers(folder: Path, options: argparse.Namespace) -> None:
    """Save the same state with each saver in turn, and print medians and ratios."""
    import torch  # seconds

    warnings.filterwarnings(
        "ignore", message=".*assuming the intent is to save in a single process"
    )
    torch.set_num_threads(1)
    training = MeasuredTraining(hidden_size=options.hidden_size, num_layers=options.num_layers)
    ways = {
        "trainyard": Trainyard(folder / "trainyard"),
        "torch.save": TorchSave(folder / "torch", durable=False),
        "torch.save + fsync": TorchSave(folder / "torch-fsync", durable=True),
        "dcp.save": DcpSave(folder / "dcp"),
        "dcp.async_save": DcpAsyncSave(folder / "dcp-async"),
    }
    training.warm_up()
    costs: dict[str, list[CheckpointCost]] = {name: [] for name in ways}
    for number in range(options.rounds + 1):
        for name, way in ways.items():
            cost = measure(way, training, step=number + 1)
            if number:  # the first allocates
                costs[name].append(cost)
    print(f"{training.num_bytes / 1e6:.1f} MB of tensors, {options.rounds} rounds; medians")
    print(
        f"{'':20}{'stall ms (range)':>26}{'own CPU ms':>12}{'other CPU ms':>14}{'there s':>9}{'MB':>8}"
    )
    for name, found in costs.items():
        stalls = sorted(each.stall_s * 1e3 for each in found)
        own, other, there = (
            statistics.median(getattr(each, of) for each in found)
            for of in ("stall_cpu_s", "other_cpu_s", "there_s")
        )
        print(
            f"{name:20}{statistics.median(stalls):10.1f} ({stalls[0]:.1f} - {stalls[-1]:.1f})".ljust(
                46
            )
            + f"{own * 1e3:12.1f}{other * 1e3:14.1f}{there:9.3f}{found[-1].num_bytes / 1e6:8.1f}"
        )


def measure(way: Any, training: MeasuredTraining, *, step: int) -> CheckpointCost:
    """Return the cost of one checkpoint; training continues until it is complete."""
    began, own_began, all_began = time.perf_counter(), time.thread_time(), time.process_time()
    way.start(step, training)
    stall_s, stall_cpu_s = time.perf_counter() - began, time.thread_time() - own_began
    while not way.is_there():
        training.step()
    own_s, all_s = time.thread_time() - own_began, time.process_time() - all_began
    return CheckpointCost(
        stall_s=stall_s,
        stall_cpu_s=stall_cpu_s,
        other_cpu_s=all_s - own_s,
        there_s=way.ended() - began,
        num_bytes=way.num_bytes(step),
    )


class MeasuredTraining:
    """The model of the training scripts, in one process, on random tokens."""

    def __init__(self, *, hidden_size: int, num_layers: int) -> None:
        import torch
        from torch.nn import functional

        from trainer.models import build
        from trainer.models.gpt import GPTConfig
        from trainer.optimization import make_optimizer

        config = GPTConfig(
            vocab_size=257, num_layers=num_layers, num_heads=4, hidden_size=hidden_size, sequence_length=256,
            dropout=0.0,
        )  # fmt: skip
        self.model = build(config.to_dict())
        self.optimizer = make_optimizer(self.model, weight_decay=0.1)
        tokens = torch.randint(257, (8, 257))
        self._loss = lambda: functional.cross_entropy(
            self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        )

    def warm_up(self) -> None:
        """Take the first steps."""
        for _ in range(3):
            self.step()

    def step(self) -> None:
        """Take one step."""
        self._loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """Return model and optimizer."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    @property
    def num_bytes(self) -> int:
        """Return the bytes of all tensors of the state."""
        states = [value for entry in self.optimizer.state.values() for value in entry.values()]
        return sum(each.nbytes for each in [*self.model.state_dict().values(), *states])


class Way:
    """A saver: `start` blocks training, and `is_there` is polled between steps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ended = 0.0
        folder.mkdir()

    def is_there(self) -> bool:
        """Return whether the checkpoint is complete."""
        return True

    def ended(self) -> float:
        """Return the time at which the checkpoint was complete, by perf_counter."""
        return self._ended

    def num_bytes(self, step: int) -> int:
        """Return the checkpoint's bytes on disk."""
        return sum(path.stat().st_size for path in self._path(step).rglob("*") if path.is_file())

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:08d}"


class Trainyard(Way):
    """Saver of training_scripts/trainyard_watch."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from trainyard_watch.background_saver import BackgroundSaver
        from trainyard_watch.checkpoint_folder import CheckpointFolder
        from trainyard_watch.metrics import MetricsWriter
        from trainyard_watch.retention import ManifestLayout, Retention
        from trainyard_watch.tensor_tree import CpuBuffers

        self._metrics = MetricsWriter(
            folder.with_name("metrics"), enabled=True, stream=io.StringIO()
        )
        retention = Retention(ManifestLayout(folder), keep=2)
        self._saver = BackgroundSaver(CheckpointFolder(folder, retention), self._metrics)
        self._buffers = CpuBuffers()

    def start(self, step: int, training: MeasuredTraining) -> None:
        """Copy the state, and begin to write."""
        content = self._buffers.copy(training.state())
        self._ended = time.perf_counter()
        self._saver.start(step, objects=content, files={}, facts={})

    def is_there(self) -> bool:
        """Return whether the writing thread has ended."""
        if self._saver.is_writing:
            return False
        self._saver.finish()
        self._ended += json.loads(self._metrics.history().splitlines()[-1])["seconds"]
        return True


class TorchSave(Way):
    """`torch.save`, blocking."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        super().__init__(folder)
        self._durable = durable

    def start(self, step: int, training: MeasuredTraining) -> None:
        """Write model and optimizer."""
        import torch

        self._path(step).mkdir()
        with (self._path(step) / "state.pt").open("wb") as file:
            torch.save(training.state(), file)
            if self._durable:
                file.flush()
                os.fsync(file.fileno())
        self._ended = time.perf_counter()


class DcpSave(Way):
    """`torch.distributed.checkpoint.save`, blocking."""

    def start(self, step: int, training: MeasuredTraining) -> None:
        """Write model and optimizer."""
        import torch.distributed.checkpoint as dcp

        dcp.save(training.state(), checkpoint_id=self._path(step), no_dist=True)
        self._ended = time.perf_counter()


class DcpAsyncSave(Way):
    """`torch.distributed.checkpoint.async_save` on a thread, with a stager that reuses its buffers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        self._future: Any = None
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=False,
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=False,
            )
        )

    def start(self, step: int, training: MeasuredTraining) -> None:
        """Copy the state to the stager's buffers, and begin to write."""
        import torch.distributed.checkpoint as dcp

        self._future = dcp.async_save(
            training.state(),
            checkpoint_id=self._path(step),
            async_stager=self._stager,
            no_dist=True,
        )
        self._future.add_done_callback(self._note_end)

    def _note_end(self, _: Any) -> None:
        self._ended = time.perf_counter()

    def is_there(self) -> bool:
        """Return whether the writing thread has ended."""
        if not self._future.done():
            return False
        self._future.result()
        return True


def compare_runs(folder: Path, *, rounds: int, steps: int) -> None:
    """Train the default model with the chosen interval and without checkpoints, in turns; print the shares."""
    dataset = folder / "dataset"
    _shard(dataset)
    seconds: dict[int, list[float]] = {WITH: [], WITHOUT: []}
    for number in range(rounds):
        for interval in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
            base = folder / f"run-{number}-{interval}"
            events = train(base, dataset, steps=steps, interval=interval)
            seconds[interval].append(training_seconds(events))
            if interval == WITH:
                say_share(events, seconds[WITH][-1])
            shutil.rmtree(base)
    pairs = zip(seconds[WITH], seconds[WITHOUT], strict=True)
    print(
        "whole runs, with / without, pair by pair:", *(f"{ours / bare:.3f}" for ours, bare in pairs)
    )


def train(base: Path, dataset: Path, *, steps: int, interval: int) -> list[dict[str, Any]]:
    """Return the events of one run of the default model on two ranks.

    Raises:
        subprocess.CalledProcessError: the script failed.
    """
    (base / "input" / "data").mkdir(parents=True)
    for channel in CHANNELS:
        (base / "input" / "data" / channel).symlink_to(dataset / channel)
    hyperparameters = {"max_steps": steps, "checkpoint_interval": interval, "num_threads": 1}
    environment = {
        **os.environ, "SAGEMAKER_BASE_DIR": str(base), "SM_HPS": json.dumps(hyperparameters), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run(
        [*command, str(SCRIPTS / "train_ddp.py")], env=environment, check=True, capture_output=True
    )
    lines = (base / "output" / "data" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def training_seconds(events: list[dict[str, Any]]) -> float:
    """Return the seconds from the end of the first step to the end of the last."""
    times = [event["time"] for event in events if event["event"] == "step"]
    return times[-1] - times[0]


def say_share(events: list[dict[str, Any]], seconds: float) -> None:
    """Print the cost of a run's checkpoints, from its own records; the last checkpoint follows the training."""
    stalls = [event["stall_seconds"] for event in events if event["event"] == "checkpoint"][:-1]
    cpu = [event["cpu_seconds"] for event in events if event["event"] == "durable"][:-1]
    intervals = [event["steps"] for event in events if event["event"] == "interval"]
    print(
        f"{seconds:.1f} s of training, {len(stalls)} checkpoints, intervals {intervals}: stalls "
        f"{sum(stalls) * 1e3:.1f} ms ({sum(stalls) / seconds:.3%}), with all processor time of the writer "
        f"{sum(stalls + cpu) * 1e3:.1f} ms ({sum(stalls + cpu) / seconds:.3%})",
        flush=True,
    )


def _shard(folder: Path) -> None:
    from trainyard.sharding import LocalObjects, ShardSettings, Source, shard_dataset

    objects = folder.parent / "objects"
    result = shard_dataset(
        Source(uri="python-stdlib", max_source_bytes=4_000_000), ShardSettings(num_shards=2),
        LocalObjects(objects), destination="s3://checkpoint/data", work_dir=folder.parent,
    )  # fmt: skip
    (objects / result.uri.removeprefix("s3://")).rename(folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--num-layers", type=int, default=4)
    parser.add_argument(
        "--whole", action="store_true", help="whole runs instead of single checkpoints"
    )
    parser.add_argument("--steps", type=int, default=400, help="steps of a whole run")
    parser.add_argument(
        "--folder", type=Path, help="folder of the files (default: the temporary folder)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
