"""Fixtures of the trainer's tests: small data sets, and jobs whose ranks are real processes."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.limits import EVENT_LIMIT_S
from trainyard.rules.records import StepRecord
from trainyard.rules.statistics_file import read_statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

    from torch import Tensor

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "training_scripts"
TINY = {
    "num_layers": 2, "num_heads": 2, "hidden_size": 32, "sequence_length": 16,
    "global_batch_size": 8, "max_steps": 6, "warmup_steps": 2, "learning_rate": 0.01,
    "log_interval": 1, "eval_interval": 3, "eval_batches": 2, "checkpoint_interval": -1,
}  # fmt: skip


PRELOADED = ("torch._dynamo", "torch.nn.parallel.distributed", "evaluate", "train_ddp")
"""Modules that the parent imports for all ranks: the scripts, and those that a process's first optimizer imports.

These imports take seconds.
"""


class RankServer:
    """The parent that forks ranks; see rank_server.py.

    Args:
        python: the interpreter of the ranks.
        preload: the modules that the parent imports.
        path: further folders of modules.
    """

    def __init__(
        self,
        *,
        python: str | Path = sys.executable,
        preload: Sequence[str] = PRELOADED,
        path: Sequence[Path] = (),
    ) -> None:
        self._process = subprocess.Popen(
            [python, str(HERE / "rank_server.py"), *preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(map(str, path)),
            },
        )
        assert self._answer() == {"ready": 1}

    def start(self, **job: Any) -> int:
        """Return the pid of a new rank."""
        return self._ask({"start": job})["pid"]

    def wait(self, pid: int) -> int:
        """Return the exit code of a rank."""
        code = self._ask({"wait": pid, "limit_s": EVENT_LIMIT_S})["exit_code"]
        assert code is not None, f"rank {pid} still runs after {EVENT_LIMIT_S} s"
        return code

    def close(self) -> None:
        """End the server."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())


@dataclass(kw_only=True)
class ContainerJob:
    """One training job in its own base folder; can be started again, as after an interruption."""

    server: RankServer
    base_dir: Path
    pids: list[int] = field(default_factory=list)

    def start(
        self,
        *,
        main: str = "train_ddp",
        argv: Sequence[str] = (),
        world_size: int = 1,
        environ: Mapping[int, Mapping[str, str]] | None = None,
        **hyperparameters: Any,
    ) -> None:
        """Start the ranks of a script of `training_scripts` or of this folder; `environ` adds to single ranks."""
        values = {name: str(value) for name, value in {**TINY, **hyperparameters}.items()}
        common = {
            "SAGEMAKER_BASE_DIR": str(self.base_dir), "SM_HPS": json.dumps(values),
            "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"],
        }  # fmt: skip
        port = unused_port()
        for rank in range(world_size):
            launch = {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size),
                "LOCAL_WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }  # fmt: skip
            self.pids.append(
                self.server.start(
                    main=main,
                    argv=list(argv),
                    environ=common | launch | dict((environ or {}).get(rank, {})),
                    log=str(self.log_path(rank)),
                )
            )

    def run(self, **settings: Any) -> list[int]:
        """Start the ranks and return their exit codes."""
        self.start(**settings)
        return self.wait()

    def wait(self) -> list[int]:
        """Return the exit codes of the ranks that were started."""
        codes = [self.server.wait(pid) for pid in self.pids]
        self.pids.clear()
        return codes

    def has_ended(self, rank: int, *, within_s: float) -> bool:
        """Return whether a rank ends before the seconds are over."""
        descriptor = os.pidfd_open(self.pids[rank])
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        ended = poller.poll(within_s * 1000)
        os.close(descriptor)
        return bool(ended)

    def kill(self, rank: int, signal_number: int) -> None:
        """Send a signal to a running rank."""
        os.kill(self.pids[rank], signal_number)

    def wait_for_line(self, text: str) -> None:
        """Return as soon as rank 0 has printed `text`; fail when it ends first, or too late."""
        descriptor = os.pidfd_open(self.pids[0])
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        deadline = time.monotonic() + EVENT_LIMIT_S
        try:
            while text not in self.log():
                assert not poller.poll(5), f"rank 0 ended without {text!r}:\n{self.log()}"
                assert time.monotonic() < deadline, (
                    f"no {text!r} in {EVENT_LIMIT_S} s:\n{self.log()}"
                )
        finally:
            os.close(descriptor)

    def checkpoints(self) -> list[str]:
        """Return the names in the checkpoint folder."""
        return sorted(path.name for path in (self.base_dir / "checkpoints").iterdir())

    def weights(self) -> dict[str, Tensor]:
        """Return the state of the trained model."""
        from trainer.artifacts import read_model

        return read_model(self.base_dir / "model")[0].state_dict()

    def weights_sha256(self) -> str:
        """Return the SHA-256 of the trained model's state."""
        from trainer.artifacts import weights_sha256

        return weights_sha256(self.weights())

    def log_path(self, rank: int = 0) -> Path:
        """Return the file of what a rank printed."""
        return self.base_dir / f"rank-{rank}.log"

    def log(self, rank: int = 0) -> str:
        """Return what a rank printed."""
        path = self.log_path(rank)
        return path.read_text() if path.exists() else ""

    def log_lines(self) -> list[str]:
        """Return the metric lines that rank 0 printed."""
        return [line for line in self.log().splitlines() if line.startswith("trainyard ")]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind in metrics.jsonl."""
        lines = (self.base_dir / "output" / "data" / "metrics.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def losses(self) -> list[float]:
        """Return the loss of each step."""
        return [event["loss"] for event in self.events("step")]

    def observed_steps(self) -> list[StepRecord]:
        """Return the steps of all ranks' statistics."""
        texts = {
            path.name: path.read_text().splitlines(keepends=True)
            for folder in self.base_dir.rglob("statistics")
            for path in folder.glob("*.jsonl")
        }
        return [each for each in read_statistics(texts) if isinstance(each, StepRecord)]

    @property
    def failure(self) -> str:
        """Return the reason that the job left."""
        return (self.base_dir / "output" / "failure").read_text()


def unused_port() -> int:
    """Return a TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def free_port() -> int:
    """Return a TCP port that nobody listens on."""
    return unused_port()


@pytest.fixture(scope="session")
def rank_server() -> Iterator[RankServer]:
    """Yield the parent of all ranks of this session."""
    server = RankServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def shards() -> ModuleType:
    """Return the writer of small data sets."""
    spec = importlib.util.spec_from_file_location("shard_writer", HERE / "shard_writer.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def token_data(tmp_path_factory: pytest.TempPathFactory, shards: ModuleType) -> Path:
    """Return the folder of a data set of short, learnable documents in three splits."""
    draw = random.Random(0)  # noqa: S311 data, not secrets
    words = [b"import ", b"return ", b"self.", b"def ", b"None\n", b"    "]

    def documents(number: int) -> list[bytes]:
        return [b"".join(draw.choices(words, k=30)) for _ in range(number)]

    splits = {"train": documents(24), "validation": documents(8), "test": documents(8)}
    return shards.write_token_dataset(tmp_path_factory.mktemp("tokens"), splits, num_shards=3)


@pytest.fixture(scope="session")
def table_data(tmp_path_factory: pytest.TempPathFactory, shards: ModuleType) -> Path:
    """Rows whose target follows from a number and a category."""
    draw = random.Random(1)  # noqa: S311 data, not secrets
    root = tmp_path_factory.mktemp("table")
    splits = {}
    for split, num_rows in (("train", 600), ("validation", 100), ("test", 100)):
        numbers = [draw.gauss(0, 1) for _ in range(num_rows)]
        codes = [draw.randrange(2) for _ in range(num_rows)]
        columns = {
            "x": ("float32", numbers),
            "c": ("int32", codes),
            "y": ("int32", [int((x > 0) != bool(c)) for x, c in zip(numbers, codes, strict=True)]),
            "z": ("float32", [2 * x - c for x, c in zip(numbers, codes, strict=True)]),
        }
        entry = shards.write_shard(root / split / "shard-00000.bin", columns)
        splits[split] = {
            "num_rows": num_rows,
            "shards": [entry | {"rows": num_rows, "first_row": 0}],
        }
    schema = [
        {"name": "x", "dtype": "float32", "role": "feature", "mean": 0.0, "std": 1.0},
        {"name": "c", "dtype": "int32", "role": "feature", "categories": ["no", "yes"]},
        {"name": "y", "dtype": "int32", "role": "target", "categories": ["left", "right"]},
        {"name": "z", "dtype": "float32", "role": "id", "mean": -0.5, "std": 2.1},
    ]
    return shards.write_index(root, {"kind": "columns", "schema": schema}, splits)


@pytest.fixture
def make_job(
    rank_server: RankServer, tmp_path: Path, token_data: Path
) -> Iterator[Callable[..., ContainerJob]]:
    """Yield a function that makes a job over the token data, or over `data`; kills what is left."""
    jobs: list[ContainerJob] = []

    def make(name: str = "job", data: Path = token_data) -> ContainerJob:
        base_dir = tmp_path / name
        (base_dir / "input").mkdir(parents=True)
        (base_dir / "input" / "data").symlink_to(data)
        jobs.append(ContainerJob(server=rank_server, base_dir=base_dir))
        return jobs[-1]

    yield make
    for job in jobs:
        for rank in range(len(job.pids)):
            job.kill(rank, signal.SIGKILL)
        job.wait()


@pytest.fixture
def evaluation(rank_server: RankServer) -> Callable[..., int]:
    """Return a function that runs evaluate.py in a base folder, by so many ranks, and returns the worst exit code."""

    def run(base_dir: Path, argv: Sequence[str] = (), *, world_size: int = 1) -> int:
        environ = {"SAGEMAKER_BASE_DIR": str(base_dir), "OMP_NUM_THREADS": "1"}
        port = unused_port()
        pids = []
        for rank in range(world_size):
            launch = {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size),
                "LOCAL_WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            } if world_size > 1 else {}  # fmt: skip
            log = str(base_dir / ("evaluate.log" if rank == 0 else f"evaluate-{rank}.log"))
            pids.append(
                rank_server.start(
                    main="evaluate", argv=list(argv), environ=environ | launch, log=log
                )
            )
        return max(abs(rank_server.wait(pid)) for pid in pids)

    return run
