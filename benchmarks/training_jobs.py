"""Shared parts of benchmarks: a separate engine, a small sharded data set in it, and training jobs on that data."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import boto3
import requests
from botocore.config import Config
from checkout import REPOSITORY, SCRIPTS

from trainyard.sagemaker_api.training_request import forwarding_entrypoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"
ACCOUNT, REGION = "123456789012", "us-east-1"
BUCKET = f"sagemaker-{REGION}-{ACCOUNT}"
PREFIX = "benchmark"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/TrainyardExecutionRole"
CHANNELS = ("train", "validation", "index")
ENDED = ("Completed", "Failed", "Stopped")
WARM_LIMIT_S, JOB_LIMIT_S, POLL_S = 60.0, 900.0, 0.1


class MeasuredEngine:
    """Clients of one engine, and the address of its fault store."""

    def __init__(self, endpoint: str) -> None:
        def client(service: str) -> Any:
            return boto3.client(
                service,
                endpoint_url=endpoint,
                region_name=REGION,
                aws_access_key_id="test",
                aws_secret_access_key="test",  # noqa: S106  # the engine takes any
                config=Config(retries={"total_max_attempts": 2}),
            )

        self.endpoint = endpoint
        self.sagemaker, self.s3, self.logs = (client(each) for each in ("sagemaker", "s3", "logs"))

    def put_faults(self, faults: list[dict[str, Any]]) -> None:
        """Replace the engine's faults by these. An AssertionError has the reason if the engine rejects one."""
        answer = requests.put(f"{self.endpoint}/_engine/faults", json=faults, timeout=10)
        assert answer.ok, answer.text

    def fired_at(self, what: str) -> list[float]:
        """Return the times at which faults of a kind were executed, epoch seconds."""
        answer = requests.get(f"{self.endpoint}/_engine/faults", timeout=10).json()
        return sorted(
            at for fault in answer["faults"] if fault["what"] == what for at in fault["fired_at"]
        )

    def fired(self) -> set[str]:
        """Return the ids of the faults that were executed."""
        answer = requests.get(f"{self.endpoint}/_engine/faults", timeout=10).json()
        return {fault["id"] for fault in answer["faults"] if fault["fired_at"]}

    def upload(self, dataset: Path) -> None:
        """Upload the shards and the training code to the addresses of `training_job`."""
        for path in sorted(each for each in dataset.rglob("*") if each.is_file()):
            key = f"{PREFIX}/dataset/{path.relative_to(dataset)}"
            self.s3.upload_file(str(path), BUCKET, key)
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            tar.add(SCRIPTS, arcname=".", filter=_without_bytecode)
        self.s3.put_object(
            Bucket=BUCKET, Key=f"{PREFIX}/code/sourcedir.tar.gz", Body=archive.getvalue()
        )

    def finished(self, name: str) -> dict[str, Any]:
        """Wait for a training job's end and return the answer of Describe.

        Raises:
            TimeoutError: the job runs for more than JOB_LIMIT_S.
        """
        until = time.monotonic() + JOB_LIMIT_S
        while time.monotonic() < until:
            answer: dict[str, Any] = self.sagemaker.describe_training_job(TrainingJobName=name)
            if answer["TrainingJobStatus"] in ENDED:
                return answer
            time.sleep(POLL_S)
        raise TimeoutError(f"{name} still runs after {JOB_LIMIT_S:.0f} s: {answer}")


def training_job(
    name: str, hyperparameters: Mapping[str, Any], *, instance_count: int = 2, is_spot: bool = False
) -> dict[str, Any]:
    """Return the request of a training job. On spot capacity it has checkpoints, and gets SIGTERM before a stop."""
    launch = {
        "sagemaker_program": "train_ddp.py",
        "sagemaker_submit_directory": f"s3://{BUCKET}/{PREFIX}/code/sourcedir.tar.gz",
        "sagemaker_torch_distributed_enabled": "true",
        "sagemaker_instance_type": "ml.m5.xlarge",
        "sagemaker_mpi_num_of_processes_per_host": "1",
    }
    given = {key: json.dumps(value) for key, value in hyperparameters.items()}
    request: dict[str, Any] = {
        "TrainingJobName": name,
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "RoleArn": ROLE,
        "HyperParameters": launch | given,
        "InputDataConfig": [_channel(each) for each in CHANNELS],
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/{PREFIX}/output"},
        "ResourceConfig": {
            "InstanceType": "ml.m5.xlarge",
            "InstanceCount": instance_count,
            "VolumeSizeInGB": 10,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 1800},
        "Environment": {"OMP_NUM_THREADS": "1"},
    }
    if is_spot:
        entrypoint, arguments = forwarding_entrypoint("train_ddp.py")
        request["AlgorithmSpecification"] |= {
            "ContainerEntrypoint": list(entrypoint),
            "ContainerArguments": list(arguments),
        }
        request["EnableManagedSpotTraining"] = True
        request["StoppingCondition"]["MaxWaitTimeInSeconds"] = 3600
        request["CheckpointConfig"] = {"S3Uri": f"s3://{BUCKET}/{PREFIX}/checkpoints/{name}/"}
    return request


def shard(folder: Path, *, max_source_bytes: int = 1_000_000) -> None:
    """Write the source of Python's standard library as two shards to `folder`."""
    from trainyard.sharding import LocalObjects, ShardSettings, Source, shard_dataset

    objects = folder.parent / "objects"
    source = Source(uri="python-stdlib", max_source_bytes=max_source_bytes)
    result = shard_dataset(
        source,
        ShardSettings(num_shards=2),
        LocalObjects(objects),
        destination="s3://benchmark/data",
        work_dir=folder.parent,
    )
    (objects / result.uri.removeprefix("s3://")).rename(folder)


@contextmanager
def running_engine(root: Path, *, time_scale: float = 1.0) -> Iterator[MeasuredEngine]:
    """Run an engine with its state in `root` while the body runs; wait first until it can start jobs quickly."""
    command = [sys.executable, "-m", "sagemaker_engine", "--port", "0", "--root", str(root)]
    with subprocess.Popen(
        [*command, "--time-scale", str(time_scale)],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None  # a pipe
            endpoint = process.stdout.readline().split()[2]
            _wait_until_warm(root)
            yield MeasuredEngine(endpoint)
        finally:
            process.terminate()


def _wait_until_warm(root: Path) -> None:
    until = time.monotonic() + WARM_LIMIT_S
    while not (root / "warm" / "ready").exists():
        if time.monotonic() > until:
            print(f"no warm worker within {WARM_LIMIT_S:.0f} s: jobs start cold")
            return
        time.sleep(POLL_S)


def _channel(name: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{PREFIX}/dataset/{name}/"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


def _without_bytecode(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in member.name else member
