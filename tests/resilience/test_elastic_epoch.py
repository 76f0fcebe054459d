"""2 ranks, then 1, then 2 again, each killed without notice: every sample of the epoch is seen exactly once."""

from __future__ import annotations

import io
import json
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.contract.waiting import WaitClock, wait_until
from tests.limits import EVENT_LIMIT_S
from tests.training_scripts.shard_writer import write_token_dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import RunningEngine

# `tests/training_scripts/test_resume.py` has the fast representative: 2 ranks, then 1, then 2.
pytestmark = [pytest.mark.engine, pytest.mark.torch, pytest.mark.slow]

SCRIPTS = Path(__file__).resolve().parents[2] / "training_scripts"
PREFIX = "elastic"
NUM_SAMPLES, BATCH, SEQUENCE = 480, 4, 16
MAX_STEPS = NUM_SAMPLES // BATCH
INSTANCES_AND_LAST_STEPS = ((2, 35), (1, 70), (2, None))
START = re.compile(r"^trainyard start step=(\d+) world_size=(\d+) .*num_samples=(\d+)")
STEP = re.compile(r"^trainyard step=(\d+) .*samples=(\d+):(\d+) digest=([0-9a-f]{16})")


@dataclass(frozen=True, kw_only=True)
class EpochStart:
    """What one start of the training printed: where it began, on how many ranks, and each of its steps."""

    step: int
    world_size: int
    num_samples: int
    steps: dict[int, tuple[int, int, int]]


def test_two_then_one_then_two_ranks_see_every_sample_of_the_epoch_once(
    engine: RunningEngine, tmp_path: Path
) -> None:
    upload(engine, tmp_path)

    starts = [
        start
        for number, (instances, last_step) in enumerate(INSTANCES_AND_LAST_STEPS)
        for start in train(engine, f"elastic-{number}", instances, killed_at=last_step)
    ]

    assert [start.world_size for start in starts] == [2, 1, 2]
    assert {start.num_samples for start in starts} == {NUM_SAMPLES}
    assert 0 == starts[0].step < starts[1].step < starts[2].step
    kept = list(steps_that_count(starts))
    ends = [end for _, end, _ in kept]
    assert [first for first, _, _ in kept] == [0, *ends[:-1]]
    assert ends[-1] == NUM_SAMPLES
    digest = sum(digest for _, _, digest in kept) % 2**64
    assert digest == sum(mix64(sample + 1) for sample in range(NUM_SAMPLES)) % 2**64


def steps_that_count(starts: list[EpochStart]) -> Iterator[tuple[int, int, int]]:
    """Yield first position, end and digest of each step that a later start did not do again."""
    resumed_at = [start.step for start in starts[1:]]
    for start, until in zip(starts, [*resumed_at, MAX_STEPS], strict=True):
        yield from (start.steps[step] for step in range(start.step + 1, until + 1))


def mix64(value: int) -> int:
    """Return the finalizer of splitmix64 (Steele, Lea and Flood 2014, variant 13)."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def upload(engine: RunningEngine, folder: Path) -> None:
    """Put a data set of exactly NUM_SAMPLES samples, and the training code, into the engine."""
    text = bytes(index % 251 for index in range(NUM_SAMPLES * SEQUENCE))
    splits = {"train": [text], "validation": [text[: 8 * SEQUENCE]]}
    write_token_dataset(folder / "data", splits, num_shards=1)
    s3 = engine.client("s3")
    for path in (folder / "data").rglob("*.*"):
        s3.upload_file(
            str(path), engine.bucket, f"{PREFIX}/data/{path.relative_to(folder / 'data')}"
        )
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.add(SCRIPTS, arcname=".", filter=lambda m: None if "__pycache__" in m.name else m)
    s3.put_object(Bucket=engine.bucket, Key=f"{PREFIX}/code.tar.gz", Body=archive.getvalue())


def train(
    engine: RunningEngine, name: str, instances: int, *, killed_at: int | None
) -> list[EpochStart]:
    """Run one job on the checkpoints that all share; return its starts once it has ended."""
    kill = {"what": "kill_rank", "job": name, "at": {"step": killed_at}, "hosts": ["algo-1"]}
    answer = requests.put(
        f"{engine.endpoint_url}/_engine/faults",
        json=[kill] if killed_at is not None else [],
        timeout=10,
    )
    assert answer.ok, answer.text
    sagemaker = engine.client("sagemaker")
    sagemaker.create_training_job(**request(engine, name, instances))
    job = wait_until(
        lambda: sagemaker.describe_training_job(TrainingJobName=name),
        lambda described: described["TrainingJobStatus"] != "InProgress",
        clock=WaitClock(poll_s=0.1, limit_s=EVENT_LIMIT_S),
        what=f"the end of {name}",
    )
    wanted = "Completed" if killed_at is None else "Failed"
    assert job["TrainingJobStatus"] == wanted, job.get("FailureReason")
    return list(starts_of(engine, name))


def starts_of(engine: RunningEngine, name: str) -> Iterator[EpochStart]:
    """Yield what each start of the job's first host printed."""
    logs = engine.client("logs")
    group = "/aws/sagemaker/TrainingJobs"
    streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{name}/algo-1-")[
        "logStreams"
    ]
    for stream in streams:
        events = logs.get_log_events(
            logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True
        )["events"]
        lines = [event["message"] for event in events]
        (begun,) = filter(None, map(START.match, lines))
        steps = {
            int(step): (int(first), int(end), int(digest, 16))
            for step, first, end, digest in (m.groups() for m in map(STEP.match, lines) if m)
        }
        step, world_size, num_samples = map(int, begun.groups())
        yield EpochStart(step=step, world_size=world_size, num_samples=num_samples, steps=steps)


def request(engine: RunningEngine, name: str, instances: int) -> dict[str, Any]:
    """Return a job on so many instances; all have one checkpoint prefix."""
    hyperparameters = {
        "sagemaker_program": "train_ddp.py",
        "sagemaker_submit_directory": f"s3://{engine.bucket}/{PREFIX}/code.tar.gz",
        "sagemaker_torch_distributed_enabled": True,
        "sagemaker_instance_type": "ml.m5.xlarge",
        "sagemaker_mpi_num_of_processes_per_host": 1,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_size": 32,
        "sequence_length": SEQUENCE,
        "global_batch_size": BATCH,
        "micro_batch_size": BATCH // 2,
        "max_steps": MAX_STEPS,
        "warmup_steps": 5,
        "eval_interval": 0,
        "checkpoint_interval": 10,
        "log_interval": 1,
        "num_threads": 1,
    }
    channels = {name: f"{PREFIX}/data/{name}/" for name in ("train", "validation", "index")}
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312",
            "TrainingInputMode": "File",
        },
        "RoleArn": engine.role_arn,
        "HyperParameters": {key: json.dumps(value) for key, value in hyperparameters.items()},
        "InputDataConfig": [
            {"ChannelName": channel, "DataSource": {"S3DataSource": s3_source(engine, prefix)}}
            for channel, prefix in channels.items()
        ],
        "OutputDataConfig": {"S3OutputPath": f"s3://{engine.bucket}/{PREFIX}/output"},
        "CheckpointConfig": {"S3Uri": f"s3://{engine.bucket}/{PREFIX}/checkpoints"},
        "ResourceConfig": {
            "InstanceType": "ml.m5.xlarge",
            "InstanceCount": instances,
            "VolumeSizeInGB": 1,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 300},
    }


def s3_source(engine: RunningEngine, prefix: str) -> dict[str, str]:
    """Return a channel's place in S3."""
    return {"S3DataType": "S3Prefix", "S3Uri": f"s3://{engine.bucket}/{prefix}"}
