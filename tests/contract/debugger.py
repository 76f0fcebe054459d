"""Requests with Debugger's members, and a training that is a few lines of statistics."""

from __future__ import annotations

import json
from typing import Any

IMAGE = "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest"
STOP = json.dumps([{"name": "stoptraining"}])

# Writes what a rank of a training writes: a step each tenth of a second, NaN from step `bad` on, until SIGTERM.
SCRIPT = """
import json, pathlib, signal, sys, time
folder, rank, world, attempt, begin, bad, last = sys.argv[1], *map(int, sys.argv[2:])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
path = pathlib.Path(folder)
path.mkdir(parents=True, exist_ok=True)
name = f"rank-{rank:05d}.attempt-{attempt:04d}.part-0001.jsonl"
with (path / name).open("w", buffering=1) as file:
    def write(line):
        file.write(json.dumps({"time": time.time(), **line}) + "\\n")
    write({"format": "trainyard-statistics", "version": 1, "rank": rank, "world_size": world, "attempt": attempt,
           "resumed_at": begin, "tensors": {}})
    for step in range(begin + 1, last + 1):
        loss = "nan" if step >= bad else 5.0 / step
        write({"kind": "step", "step": step, "loss": loss, "learning_rate": 0.001})
        print(f"step={step}", flush=True)
        time.sleep(0.1)
"""


def training(
    *,
    folder: str = "/opt/ml/output/tensors",
    rank: str = "0",
    world: int = 1,
    attempt: str = "1",
    begin: str = "0",
    bad: int = 10**6,
    last: int = 5,
) -> str:
    """Return the shell's command of such a training, SCRIPT in the channel `code`; what is text is for the shell."""
    return f"exec python3 /opt/ml/input/data/code/train.py {folder} {rank} {world} {attempt} {begin} {bad} {last}"


def code_channel(uri: str) -> dict[str, Any]:
    """Return the channel that brings SCRIPT, stored below `uri`."""
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": "code", "DataSource": {"S3DataSource": source}}


def rule(name: str, invoke: str | None = None, **parameters: str) -> dict[str, Any]:
    """Return the configuration of a rule of ours or AWS's."""
    return {
        "RuleConfigurationName": name,
        "RuleEvaluatorImage": IMAGE,
        "RuleParameters": {"rule_to_invoke": invoke or name, **parameters},
    }


def statuses(described: dict[str, Any], kind: str = "Debug") -> dict[str, str]:
    """Return the status of each rule by its name."""
    return {
        each["RuleConfigurationName"]: each["RuleEvaluationStatus"]
        for each in described.get(f"{kind}RuleEvaluationStatuses", ())
    }
