"""Runs a real training, healthy or with a fault, as processes of its own, and reads what it wrote as the rules do."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer.process import run_rank
from trainyard.rules.records import MarkRecord
from trainyard.rules.run_folder import records_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainer.training import Training
    from trainyard.rules.records import Record

LIMIT_S = 1800.0
TINY_GPT = {
    "num_layers": 2, "num_heads": 2, "hidden_size": 32, "sequence_length": 32, "global_batch_size": 16,
    "max_steps": 200, "warmup_steps": 10, "learning_rate": 0.01, "eval_interval": 0, "checkpoint_interval": -1,
    "log_interval": 1000, "verify_shards": False,
}  # fmt: skip
TINY_MLP = {
    "model": "mlp", "num_layers": 2, "hidden_size": 32, "global_batch_size": 32, "max_steps": 200,
    "warmup_steps": 10, "learning_rate": 0.005, "eval_interval": 0, "checkpoint_interval": -1, "log_interval": 1000,
    "verify_shards": False,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What a training left.

    Attributes:
        exit_codes: one a rank; negative where it was killed.
    """

    records: list[Record] = field(repr=False)
    exit_codes: list[int]
    seconds: float
    log: str = field(repr=False)


def run_training(
    folder: Path,
    training: type[Training],
    hyperparameters: Mapping[str, Any],
    data: Path,
    *,
    world_size: int = 1,
    ends_s: float | None = None,
) -> Observed:
    """Return what was observed of one training.

    Args:
        folder: of the job; made here.
        training: what each rank runs.
        hyperparameters: as the job would give them.
        data: the channels.
        world_size: ranks.
        ends_s: kill the ranks after so long: one of them hangs. What a watcher's clock would say then is added.
    """
    _import_once_for_all_forks()
    (folder / "input").mkdir(parents=True)
    (folder / "input" / "data").symlink_to(data)
    began = time.monotonic()
    pids = [
        _fork(folder, training, hyperparameters, rank, world_size) for rank in _ports(world_size)
    ]
    deadline = began + (ends_s or LIMIT_S)
    codes = [_wait(pid, deadline) for pid in pids]
    records = records_in(folder / "output" / "data" / "statistics")
    if ends_s is not None:
        last = max(record.step for record in records)
        records.append(MarkRecord(kind="clock", step=last, time=time.time()))
    logs = [(folder / f"rank-{rank}.log").read_text() for rank in range(world_size)]
    seconds = time.monotonic() - began
    return Observed(records=records, exit_codes=codes, seconds=seconds, log="\n".join(logs))


def _import_once_for_all_forks() -> None:
    """Import what each rank would import; it takes seconds."""
    for name in ("torch.nn.parallel.distributed", "torch._dynamo"):
        importlib.import_module(name)


def _ports(world_size: int) -> list[tuple[int, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [(rank, port) for rank in range(world_size)]


def _fork(
    folder: Path,
    training: type[Training],
    hyperparameters: Mapping[str, Any],
    place: tuple[int, int],
    world_size: int,
) -> int:
    rank, port = place
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        log = os.open(folder / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        values = {name: str(value) for name, value in hyperparameters.items()}
        os.environ.update(
            SAGEMAKER_BASE_DIR=str(folder),
            SM_HPS=json.dumps(values | {"num_threads": "1"}),
            OMP_NUM_THREADS="1",
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(world_size),
            LOCAL_WORLD_SIZE=str(world_size),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
        code = run_rank(training, [])
    except BaseException:  # noqa: BLE001 a fork must never return into its parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(pid: int, deadline: float) -> int:
    """Return the exit code; what runs too long is killed."""
    descriptor = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
