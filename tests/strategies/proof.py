"""How a strategy is proved: a job on two instances, struck once by a spot interruption, trains as one process does."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.sagemaker_engine.jobs.conftest import (
    BUCKET,
    IMAGE,
    JobBench,
    channel,
    put_faults,
    statuses,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCRIPTS = Path(__file__).resolve().parents[2] / "training_scripts"
HYPERPARAMETERS: Mapping[str, str] = {
    "num_layers": "2",
    "num_heads": "2",
    "hidden_size": "32",
    "sequence_length": "16",
    "global_batch_size": "8",
    "max_steps": "8",
    "warmup_steps": "2",
    "learning_rate": "0.01",
    "log_interval": "1",
    "eval_interval": "4",
    "eval_batches": "2",
    "checkpoint_interval": "1",
    "num_threads": "1",
}
LIMIT_S = 1000.0
STRUCK_AT = 4
"""The step at which the instances are taken away, without notice."""
TOLERANCE = 2e-5
"""How far the loss of a step may be from one process's, relative: floats are added in another order."""
STEP_LINE = re.compile(r"trainyard step=(\d+) .*?\bloss=([0-9.]+)")
START_LINE = re.compile(r"trainyard start step=(\d+) world_size=(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyProof:
    """What a job did: losses by step, (first step, ranks) of each start, each rank's host, the files of its model."""

    hosts: Mapping[int, str]
    losses: Mapping[int, float]
    starts: tuple[tuple[int, int], ...]
    model: Mapping[str, bytes]
    log: tuple[str, ...]

    def check(self, alone: Mapping[int, float], *, ranks: int, tolerance: float) -> None:
        """Fail unless the job went on from a checkpoint, and every step's loss is that of one process."""
        assert [number for _, number in self.starts] == [ranks, ranks]
        assert self.hosts == {rank: f"algo-{1 + 2 * rank // ranks}" for rank in range(ranks)}
        assert 0 < self.starts[1][0] <= STRUCK_AT + 2, "it went on from a checkpoint"
        assert sorted(self.losses) == list(range(1, int(HYPERPARAMETERS["max_steps"]) + 1))
        assert self.losses == pytest.approx(alone, rel=tolerance)
        assert set(self.model) >= {"config.json", "model.json", "model.safetensors"}


@dataclass(kw_only=True)
class Proving:
    """Runs proofs."""

    bench: JobBench
    data: Path
    _has_data: bool = field(default=False, init=False)

    def prove(
        self,
        name: str,
        *,
        script: str = "train_ddp.py",
        image: str = IMAGE,
        more: Mapping[str, bytes] | None = None,
        added: Mapping[str, bytes] | None = None,
        **flags: str,
    ) -> StrategyProof:
        """Train by a strategy (the toolkit's `flags`, the script's hyperparameters) on two spot instances.

        `more` are further channels, of one file each: `<channel>/<file>` and its content; `added` are scripts beside
        the project's own.
        """
        put_faults(self.bench, {"what": "interrupt", "at": {"step": STRUCK_AT}, "job": name})
        for key, content in (more or {}).items():
            self.bench.objects.put(BUCKET, f"more/{name}/{key}", content)
        request = self._request(name, script, image, flags, added or {})
        request["InputDataConfig"] += [
            channel(key.partition("/")[0], f"s3://{BUCKET}/more/{name}/{key.partition('/')[0]}/")
            for key in more or {}
        ]
        self.bench.train(name, **request)
        row = self.bench.wait(name, limit_s=LIMIT_S)
        log = tuple(line for host in ("algo-1", "algo-2") for line in self.bench.log(name, host))
        assert row.status == "Completed", "\n".join([str(row.state), *log])
        assert statuses(row).count("Interrupted") == 1
        return StrategyProof(
            hosts=self._hosts(name),
            losses=losses_of(log),
            starts=tuple((int(a), int(b)) for a, b in START_LINE.findall("\n".join(log))),
            model=self.bench.archive(f"out/{name}/output/model.tar.gz"),
            log=log,
        )

    def _request(
        self,
        name: str,
        script: str,
        image: str,
        flags: Mapping[str, str],
        added: Mapping[str, bytes],
    ) -> dict[str, Any]:
        self._put_data()
        source = self.bench.put_source({**source_files(), **added})
        return {
            "instances": 2,
            "algorithm": {"TrainingImage": image},
            "HyperParameters": {**HYPERPARAMETERS, **source, "sagemaker_program": script, **flags},
            "InputDataConfig": [
                channel(each, f"s3://{BUCKET}/data/{each}/")
                for each in ("train", "validation", "index")
            ],
            "EnableManagedSpotTraining": True,
            "StoppingCondition": {"MaxRuntimeInSeconds": 900, "MaxWaitTimeInSeconds": 1800},
            "CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/checkpoints/{name}"},
        }

    def _hosts(self, name: str) -> dict[int, str]:
        """Return where each rank ran, as the headers of its statistics say."""
        files = self.bench.archive(f"out/{name}/output/output.tar.gz")
        headers = [
            json.loads(content.partition(b"\n")[0])
            for file, content in files.items()
            if "statistics/rank-" in file
        ]
        return {each["rank"]: each["host"] for each in headers}

    def _put_data(self) -> None:
        if not self._has_data:
            for path in sorted(each for each in self.data.rglob("*") if each.is_file()):
                key = f"data/{path.relative_to(self.data)}"
                self.bench.objects.put(BUCKET, key, path.read_bytes())
        self._has_data = True


def losses_of(lines: Iterable[str]) -> dict[int, float]:
    """Return the loss of each step; a step taken again counts as it was the last time."""
    return {int(step): float(loss) for step, loss in STEP_LINE.findall("\n".join(lines))}


def source_files() -> dict[str, bytes]:
    """Return the training scripts as a job's source archive holds them."""
    found = (each for each in SCRIPTS.rglob("*.py") if "__pycache__" not in each.parts)
    return {str(each.relative_to(SCRIPTS)): each.read_bytes() for each in found}
