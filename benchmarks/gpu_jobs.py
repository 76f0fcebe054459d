"""Shared parts of the GPU benchmarks: a data set of random tokens, and runs of the training scripts.

A run needs torch and numpy only. Its ranks use one GPU each, or share the GPUs if there are fewer: NCCL refuses two
ranks of one host on one GPU, so each rank then has a host id of its own (NCCL_HOSTID), as if it were on another host.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from checkout import SCRIPTS

from tests.training_scripts.shard_writer import write_index, write_shard

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ROW_TOKENS = 4096
POLL_S = 0.02
_PORTS = itertools.count(21_000)
"""Ports of the ranks' stores, below those that Linux gives to connections."""
EXACT = {"NVIDIA_TF32_OVERRIDE": "0"}
"""Environment in which cuBLAS multiplies float32 matrices without TF32."""


@dataclass(kw_only=True)
class ScriptRun:
    """One run of a training script; it can be started again in the same folder, as after an interruption.

    Attributes:
        base_dir: the container's /opt/ml.
        data: folder of the data set.
        hyperparameters: of the script.
        environ: additional variables of all ranks.
    """

    base_dir: Path
    data: Path
    script: str = "train_ddp.py"
    world_size: int = 1
    hyperparameters: Mapping[str, Any]
    environ: Mapping[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Start all ranks."""
        channels = self.base_dir / "input" / "data"
        if not channels.exists():
            channels.parent.mkdir(parents=True)
            channels.symlink_to(self.data)
        port = next(_PORTS)
        self.processes = [self._rank(rank, port) for rank in range(self.world_size)]

    def _rank(self, rank: int, port: int) -> subprocess.Popen[bytes]:
        num_gpus = torch.cuda.device_count()
        is_shared = self.world_size > num_gpus > 0
        ranks = {
            "RANK": rank,
            "WORLD_SIZE": self.world_size,
            "LOCAL_RANK": rank % num_gpus if is_shared else rank,
            "LOCAL_WORLD_SIZE": 1 if is_shared else self.world_size,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(SCRIPTS), os.environ["PYTHONPATH"]]),
            "SAGEMAKER_BASE_DIR": str(self.base_dir),
            "SM_HPS": json.dumps(dict(self.hyperparameters)),
            **({"NCCL_HOSTID": f"rank-{rank}"} if is_shared else {}),
            **{name: str(value) for name, value in ranks.items()},
            **self.environ,
        }
        with (self.base_dir / f"rank-{rank}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(SCRIPTS / self.script)], env=environ, stdout=log, stderr=log
            )

    def wait(self, limit_s: float) -> list[int | None]:
        """Return the ranks' exit codes; a rank that still runs after the seconds is killed and has the code None."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until and any(each.poll() is None for each in self.processes):
            time.sleep(POLL_S)
        codes = [each.poll() for each in self.processes]
        self.kill()
        return codes

    def run(self, limit_s: float = 300.0) -> list[int | None]:
        """Start all ranks and return their exit codes."""
        self.start()
        return self.wait(limit_s)

    def stop(self) -> None:
        """Send SIGTERM to all ranks."""
        for each in self.processes:
            each.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the ranks that still run."""
        for each in self.processes:
            each.kill()
            each.wait()

    def log(self, rank: int = 0) -> str:
        """Return what a rank has printed so far."""
        return (self.base_dir / f"rank-{rank}.log").read_text(errors="replace")

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind in metrics.jsonl so far."""
        path = self.base_dir / "output" / "data" / "metrics.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []  # whole lines
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        return json.loads((self.base_dir / "output" / "data" / "summary.json").read_text())


def write_tokens(root: Path, *, vocab_size: int, num_rows: int, seed: int = 0) -> Path:
    """Write a data set whose tokens are drawn by Zipf's law, as one shard a split; return `root`.

    Each row has 4,096 tokens. The splits validation and test have an eighth of the rows of the training split.
    """
    draw = random.Random(seed)  # noqa: S311 data, not secrets
    weights = [1 / (rank + 1) for rank in range(vocab_size - 1)]
    splits = {}
    for split, rows in (
        ("train", num_rows),
        ("validation", num_rows // 8),
        ("test", num_rows // 8),
    ):
        tokens = draw.choices(range(vocab_size - 1), weights, k=rows * ROW_TOKENS)
        tokens[ROW_TOKENS - 1 :: ROW_TOKENS] = [vocab_size - 1] * rows
        ends = range(ROW_TOKENS, len(tokens) + 1, ROW_TOKENS)
        columns = {"tokens": ("uint16", tokens), "row_ends": ("uint64", ends)}
        entry = write_shard(root / split / "shard-00000.bin", columns) | {
            "rows": rows,
            "first_row": 0,
            "num_tokens": len(tokens),
            "first_token": 0,
        }
        splits[split] = {"num_rows": rows, "num_tokens": len(tokens), "shards": [entry]}
    content = {
        "kind": "tokens",
        "tokenizer": {"name": "bytes", "vocab_size": vocab_size, "eos_token_id": vocab_size - 1},
        "dtype": "uint16",
        "baseline": {"unigram_loss_nats": 0.0},
    }
    return write_index(root, content, splits)


def device_name() -> str:
    """Return the name of the first GPU, or "CPU"."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
