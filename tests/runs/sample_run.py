"""A realistic run, as its tasks would leave it behind."""

from __future__ import annotations

import json
import math
import random
from typing import Any

from trainyard.runs.builder import build_run_record, job_record
from trainyard.runs.ledger import Ledger
from trainyard.runs.record import RunRecord

BEGIN = 1_795_000_000.0
UNIGRAM = 3.187
ARN = "arn:aws:sagemaker:us-east-1:123456789012"
BUCKET = "s3://sagemaker-us-east-1-123456789012"
REGISTRY = "763104351884.dkr.ecr.us-east-1.amazonaws.com"


EMPTY_LEDGER = Ledger(entries=()).to_dict()
"""Ledger of a run all of whose jobs left a result."""


def sample_record(**changes: Any) -> RunRecord:
    """Return the record of a run that succeeded, with the builder's arguments changed as given."""
    return built_record(**{**sample_arguments(), **changes})


def built_record(**arguments: Any) -> RunRecord:
    """Return the record that the builder makes of its own arguments and of the record's fields."""
    derived = {name: arguments.pop(name) for name in _DERIVED_FROM if name in arguments}
    return build_run_record(RunRecord(**arguments), **derived)


_DERIVED_FROM = frozenset(
    {"tasks", "jobs", "dataset_uri", "shard_index", "was_dataset_reused", "metric_lines", "model"}
)


def sample_arguments() -> dict[str, Any]:
    """Return the builder's arguments for a run that succeeded."""
    return {
        "dag_id": "train_end_to_end",
        "run_id": "manual__2026-11-21T10:15:00+00:00",
        "run_type": "manual",
        "started_at": BEGIN,
        "ended_at": BEGIN + 318,
        "conf": {
            "source": "python-stdlib",
            "model": "gpt",
            "num_layers": 4,
            "num_heads": 4,
            "hidden_size": 192,
            "sequence_length": 256,
            "instance_type": "ml.m5.large",
            "instance_count": 2,
            "processes_per_instance": 1,
            "global_batch_size": 16,
            "max_steps": 400,
            "learning_rate": 0.002,
            "hyperparameters": {},
            "budget_usd": 1.0,
            "role": None,
        },
        "plan": {"world_size": 2, "ceiling_usd": 0.23, "gradient_accumulation_steps": 1},
        "tasks": sample_tasks(),
        "jobs": [
            job_record("train", training_snapshot(), artifact_sha256="ab" * 32),
            job_record("evaluate", processing_snapshot()),
        ],
        "dataset_uri": "s3://sagemaker-us-east-1-123456789012/trainyard/datasets/9f2c41d0a7b3e655",
        "shard_index": shard_index(),
        "metric_lines": metric_lines(),
        "evaluation": {
            "metrics": {"test_loss": 1.742, "test_perplexity": 5.709, "unigram_loss": 3.19},
            "num_tokens": 611_328,
            "num_rows": 92,
        },
        "code_sha256": "3c516a1ad1292f846c3fcd9d7d98bd7fcae6e538d57e8c7f259e63bd84b3e6c3",
        "model": {
            "model_package_arn": f"{ARN}:model-package/trainyard/3",
            "model_package_group": "trainyard",
            "approval_status": "PendingManualApproval",
        },
    }


def sample_tasks(**states: str) -> list[dict[str, Any]]:
    """Return the tasks' rows; `states` changes the state of single tasks, and adds a task beside the training."""
    spans = {
        "preflight": (1.5, 4.1),
        "shard": (5.0, 27.4),
        "train": (28.2, 259.0),
        "evaluate": (260.1, 309.2),
        "register": (310.0, 312.3),
    }
    spans |= {task_id: (28.2, 60.0) for task_id in states if task_id not in spans}
    return [
        {
            "task_id": task_id,
            "state": states.get(task_id, "success"),
            "start": BEGIN + start,
            "end": BEGIN + end,
            "try_number": 2 if task_id == "train" else 1,
        }
        for task_id, (start, end) in spans.items()
    ]


def training_snapshot(**changes: Any) -> dict[str, Any]:
    """Return the training job's snapshot as `JobSnapshot.to_dict` gives it."""
    marks = [
        ("Starting", 30, 38),
        ("Downloading", 38, 42.5),
        ("Training", 42.5, 131),
        ("Interrupted", 131, 143),
        ("Starting", 143, 149),
        ("Downloading", 149, 152),
        ("Training", 152, 250),
        ("Uploading", 250, 256),
        ("Completed", 256, 256),
    ]
    transitions = [
        {"status": s, "start": BEGIN + a, "end": BEGIN + b, "message": None} for s, a, b in marks
    ]
    return {
        "kind": "training",
        "name": "train-end-to-end-train-0c1e22a5de",
        "arn": f"{ARN}:training-job/train-end-to-end-train-0c1e22a5de",
        "status": "Completed",
        "secondary_status": "Completed",
        "instance_type": "ml.m5.large",
        "instance_count": 2,
        "is_spot": True,
        "created_at": BEGIN + 30,
        "started_at": BEGIN + 38,
        "ended_at": BEGIN + 256,
        "training_seconds": 218,
        "billable_seconds": 89,
        "interruptions": 1,
        "final_metrics": {"train:loss": 1.69, "validation:loss": 1.755},
        "model_artifact": f"{BUCKET}/trainyard/runs/x/output/model.tar.gz",
        "image_uri": f"{REGISTRY}/pytorch-training:2.8.0-cpu-py312",
        "transitions": transitions,
        **changes,
    }


def processing_snapshot() -> dict[str, Any]:
    """Return the evaluation job's snapshot."""
    return {
        "kind": "processing",
        "name": "train-end-to-end-evaluate-77ab01c9f2",
        "status": "Completed",
        "instance_type": "ml.m5.large",
        "instance_count": 1,
        "created_at": BEGIN + 262,
        "started_at": BEGIN + 269,
        "ended_at": BEGIN + 307,
        "training_seconds": 38,
        "billable_seconds": 38,
        "transitions": [],
    }


def shard_index() -> dict[str, Any]:
    """Return an index.json of a token data set."""
    draw = random.Random(3)  # noqa: S311  # a picture, not a secret

    def shards(split: str, count: int, size: int) -> list[dict[str, Any]]:
        sizes = [int(size * (1 + draw.uniform(-0.02, 0.02))) for _ in range(count)]
        return [
            {
                "file": f"{split}/shard-{i:05d}.bin",
                "rows": 190 + i,
                "bytes": each,
                "sha256": f"{draw.getrandbits(256):064x}",
                "num_tokens": each // 2,
            }
            for i, each in enumerate(sizes)
        ]

    counts = {"train": (8, 2_700_000), "validation": (2, 610_000), "test": (2, 611_000)}
    return {
        "format": "trainyard-shards",
        "version": 1,
        "kind": "tokens",
        "fingerprint": "9f2c41d0a7b3e65512aa" + "0" * 44,
        "source": {"uri": "file:///usr/lib/python3.11", "files": 1832, "bytes": 12_310_442},
        "tokenizer": {"name": "bytes", "vocab_size": 257},
        "splits": {n: {"shards": shards(n, c, s)} for n, (c, s) in counts.items()},
        "bad_rows": {"count": 3, "fraction": 0.0016},
        "baseline": {"unigram_loss_nats": UNIGRAM},
    }


def metric_lines(num_steps: int = 400, resume_at: int | None = 150) -> list[str]:
    """Return metrics.jsonl of a run that learns, interrupted once and resumed."""
    draw = random.Random(1)  # noqa: S311
    events: list[dict[str, Any]] = []
    for step in range(10, num_steps + 1, 10):
        loss = 1.6 + 3.9 * math.exp(-step / 60) + draw.gauss(0, 0.035)
        rate = 0.002 * min(1, step / 40) * (0.55 + 0.45 * math.cos(math.pi * step / num_steps))
        now = BEGIN + 45 + step * 0.5
        events.append(
            {
                "event": "step",
                "time": now,
                "step": step,
                "epoch": 0,
                "loss": loss,
                "learning_rate": rate,
                "tokens_per_second": 8200 + draw.gauss(0, 240),
                "gradient_norm": 0.6 + 2.5 * math.exp(-step / 35) + abs(draw.gauss(0, 0.08)),
            }
        )
        if step % 50 == 0:
            value = 1.66 + 3.7 * math.exp(-step / 63)
            events.append({"event": "eval", "time": now, "step": step, "validation_loss": value})
        if step == resume_at:
            events.append({"event": "resume", "time": now + 20, "step": step})
    events.append({"event": "done", "time": BEGIN + 250, "step": num_steps, "seconds": 190.0})
    return [json.dumps(event) for event in events]
