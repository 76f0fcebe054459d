"""What a job and a run cost beyond the training itself: the engine beside bare torchrun, the DAG beside its jobs.

    python benchmarks/overhead.py [--repeats 5] [--steps 20]
    python benchmarks/overhead.py --report runs/<run id>/report.json

The first form trains the same script on the same shards with the same hyperparameters, two ranks of one thread each,
in turns:

* engine: `CreateTrainingJob` of two instances, run by AWS's toolkit and torchrun, as any client would send it;
* torchrun: `torchrun --standalone --nproc-per-node 2 train_ddp.py`, with the data already in place.

Seconds run from the call (or the start of the process) to the first training step, as the script's own clock wrote it,
and to the end: `Completed` with the model in S3, or the process's exit. The second form takes the record of a finished
run apart: the time of the run, the sum of its jobs, and what lies between.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

REPOSITORY = Path(__file__).resolve().parents[1]
SCRIPTS = REPOSITORY / "training_scripts"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"
ACCOUNT, REGION = "123456789012", "us-east-1"
BUCKET = f"sagemaker-{REGION}-{ACCOUNT}"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/TrainyardExecutionRole"
WARM_LIMIT_S, JOB_LIMIT_S = 60.0, 300.0
CHANNELS = ("train", "validation", "index")
MODEL = {
    "model": "gpt", "num_layers": 2, "num_heads": 2, "hidden_size": 64, "sequence_length": 64,
    "global_batch_size": 8, "micro_batch_size": 4, "warmup_steps": 2, "eval_interval": 0,
    "checkpoint_interval": -1, "log_interval": 1, "num_threads": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds from the call to the first step and to the end."""

    first_step_s: float
    end_s: float


def main() -> int:
    """Run what the command line asks for; return the exit status."""
    options = _parser().parse_args()
    if options.report is not None:
        print_run(json.loads(options.report.read_text()))
        return 0
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        root = Path(folder)
        _shard(root / "dataset")
        hyperparameters = {**MODEL, "max_steps": options.steps}
        with _engine(root / "engine") as endpoint:
            clients = Clients(endpoint)
            _upload(clients, root / "dataset")
            _compare(options.repeats, clients, root, hyperparameters)
    return 0


def _compare(repeats: int, clients: Clients, root: Path, hyperparameters: dict[str, Any]) -> None:
    ways: dict[str, Callable[[str], Timing]] = {
        "engine": lambda name: time_job(clients, name, hyperparameters),
        "torchrun": lambda name: time_torchrun(root / name, root / "dataset", hyperparameters),
    }
    timings: dict[str, list[Timing]] = {way: [] for way in ways}
    for repeat in range(repeats + 1):
        for way, measure in ways.items():
            timing = measure(f"{way}-{repeat}")
            print(f"{way:9} round {repeat}: first step {timing.first_step_s:6.2f} s, end {timing.end_s:6.2f} s",
                  "(not counted)" if repeat == 0 else "", flush=True)  # fmt: skip
            if repeat:
                timings[way].append(timing)
    print(
        f"\ntwo ranks, {hyperparameters['max_steps']} steps, {repeats} rounds in turn; seconds: min, median, max"
    )
    for name in ("first_step_s", "end_s"):
        for way, all_of in timings.items():
            values = sorted(getattr(each, name) for each in all_of)
            print(
                f"  {name:12} {way:9} {values[0]:7.2f} {statistics.median(values):7.2f} {values[-1]:7.2f}"
            )
        pairs = zip(timings["engine"], timings["torchrun"], strict=True)
        ratios = [getattr(ours, name) / getattr(bare, name) for ours, bare in pairs]
        print(f"  {name:12} engine / torchrun, median of pairs: {statistics.median(ratios):.2f}")


class Clients:
    """boto3 clients of one engine."""

    def __init__(self, endpoint: str) -> None:
        def client(service: str) -> Any:
            return boto3.client(
                service, endpoint_url=endpoint, region_name=REGION, aws_access_key_id="test",
                aws_secret_access_key="test",  # noqa: S106  # the engine takes any
                config=Config(retries={"total_max_attempts": 2}),
            )  # fmt: skip

        self.sagemaker, self.s3, self.logs = (client(each) for each in ("sagemaker", "s3", "logs"))


def time_job(clients: Clients, name: str, hyperparameters: Mapping[str, Any]) -> Timing:
    """Return the seconds of one training job on two instances of the engine.

    Raises:
        RuntimeError: the job did not complete.
    """
    request = _training_job(name, hyperparameters)
    began_clock, began = time.time(), time.monotonic()
    clients.sagemaker.create_training_job(**request)
    while time.monotonic() < began + JOB_LIMIT_S:
        answer = clients.sagemaker.describe_training_job(TrainingJobName=name)
        if answer["TrainingJobStatus"] == "Completed":
            end_s = time.monotonic() - began
            output = f"{name}/output/output.tar.gz"
            body = clients.s3.get_object(Bucket=BUCKET, Key=f"overhead/output/{output}")[
                "Body"
            ].read()
            with tarfile.open(fileobj=io.BytesIO(body)) as archive:
                member = next(
                    each for each in archive.getmembers() if each.name.endswith("metrics.jsonl")
                )
                lines = archive.extractfile(member)
                assert lines is not None  # a regular file
                first = _first_step_time(lines.read().decode())
            return Timing(first_step_s=first - began_clock, end_s=end_s)
        if answer["TrainingJobStatus"] in {"Failed", "Stopped"}:
            raise RuntimeError(
                f"{name}: {answer.get('FailureReason', answer['TrainingJobStatus'])}"
            )
        time.sleep(0.05)
    raise RuntimeError(f"{name} still runs after {JOB_LIMIT_S:.0f} s")


def time_torchrun(base: Path, dataset: Path, hyperparameters: Mapping[str, Any]) -> Timing:
    """Return the seconds of the same training by torchrun alone.

    Raises:
        subprocess.CalledProcessError: the script failed.
    """
    (base / "input" / "data").mkdir(parents=True)
    for channel in CHANNELS:
        (base / "input" / "data" / channel).symlink_to(dataset / channel)
    environment = {
        **os.environ,
        "SAGEMAKER_BASE_DIR": str(base),
        "SM_HPS": json.dumps(hyperparameters),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    began_clock, began = time.time(), time.monotonic()
    subprocess.run(
        [*command, str(SCRIPTS / "train_ddp.py")], env=environment, check=True, capture_output=True
    )
    end_s = time.monotonic() - began
    metrics = (base / "output" / "data" / "metrics.jsonl").read_text()
    return Timing(first_step_s=_first_step_time(metrics) - began_clock, end_s=end_s)


def print_run(report: Mapping[str, Any]) -> None:
    """Print where the time of a finished run went.

    Args:
        report: a run's report.json.
    """
    tasks = [each for each in report["tasks"] if each.get("start") and each.get("end")]
    jobs = {each["task_id"]: each["ended_at"] - each["created_at"] for each in report["jobs"]}
    in_jobs_s, whole_s = sum(jobs.values()), tasks[-1]["end"] - report["started_at"]
    waits_s = tasks[0]["start"] - report["started_at"]
    print(f"run {report['run_id']}: {whole_s:.1f} s from its start to the end of its last task")
    print(f"  {'until the first task':22} {waits_s:7.1f} s")
    for task in tasks:
        job = f", of which its job {jobs[task['task_id']]:.1f} s" if task["task_id"] in jobs else ""
        print(f"  {task['task_id']:22} {task['end'] - task['start']:7.1f} s{job}")
    gaps_s = whole_s - waits_s - sum(task["end"] - task["start"] for task in tasks)
    print(f"  {'between tasks':22} {gaps_s:7.1f} s")
    print(f"jobs {in_jobs_s:.1f} s, the rest {whole_s - in_jobs_s:.1f} s")
    print(f"run / jobs {whole_s / in_jobs_s:.2f}")


def _training_job(name: str, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    launch = {
        "sagemaker_program": "train_ddp.py",
        "sagemaker_submit_directory": f"s3://{BUCKET}/overhead/code/sourcedir.tar.gz",
        "sagemaker_torch_distributed_enabled": "true",
        "sagemaker_instance_type": "ml.m5.xlarge",
        "sagemaker_mpi_num_of_processes_per_host": "1",
    }
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "RoleArn": ROLE,
        "HyperParameters": launch
        | {key: json.dumps(value) for key, value in hyperparameters.items()},
        "InputDataConfig": [_channel(each) for each in CHANNELS],
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/overhead/output"},
        "ResourceConfig": {
            "InstanceType": "ml.m5.xlarge",
            "InstanceCount": 2,
            "VolumeSizeInGB": 10,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        "Environment": {"OMP_NUM_THREADS": "1"},
    }


def _channel(name: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/overhead/dataset/{name}/"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


def _first_step_time(metrics: str) -> float:
    events = (json.loads(line) for line in metrics.splitlines())
    return float(next(each["time"] for each in events if each["event"] == "step"))


def _shard(folder: Path) -> None:
    from include.sharding import LocalObjects, ShardSettings, Source, shard_dataset

    objects = folder.parent / "objects"
    result = shard_dataset(
        Source(uri="python-stdlib", max_source_bytes=1_000_000), ShardSettings(num_shards=2),
        LocalObjects(objects), destination="s3://overhead/data", work_dir=folder.parent,
    )  # fmt: skip
    (objects / result.uri.removeprefix("s3://")).rename(folder)


def _upload(clients: Clients, dataset: Path) -> None:
    for path in sorted(each for each in dataset.rglob("*") if each.is_file()):
        clients.s3.upload_file(str(path), BUCKET, f"overhead/dataset/{path.relative_to(dataset)}")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.add(
            SCRIPTS, arcname=".", filter=lambda each: None if "__pycache__" in each.name else each
        )
    clients.s3.put_object(
        Bucket=BUCKET, Key="overhead/code/sourcedir.tar.gz", Body=archive.getvalue()
    )


@contextmanager
def _engine(root: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "include.local_engine", "--port", "0", "--root", str(root)]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None  # a pipe
            endpoint = process.stdout.readline().split()[2]
            _wait_until_warm(root)
            yield endpoint
        finally:
            process.terminate()


def _wait_until_warm(root: Path) -> None:
    until = time.monotonic() + WARM_LIMIT_S
    while not (root / "warm" / "ready").exists():
        if time.monotonic() > until:
            print(f"no warm worker within {WARM_LIMIT_S:.0f} s: jobs start cold")
            return
        time.sleep(0.1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=re.split(r"\n\n", __doc__ or "")[0])
    parser.add_argument(
        "--repeats", type=int, default=5, help="counted rounds, after one that is not (5)"
    )
    parser.add_argument("--steps", type=int, default=20, help="training steps of each job (20)")
    parser.add_argument(
        "--report", type=Path, help="a run's report.json: take this run apart instead"
    )
    return parser


if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))
    sys.exit(main())
