"""Comparison of the engine with moto's server in one run: object traffic, memory and API latency.

    python benchmarks/engine.py [--repeats 3] [--only s3|api]

Both servers are separate processes; this process is the client, boto3 with its defaults. Rounds alternate between the
servers, so that other load affects both. Absolute figures depend on the machine and its load: compare the ratios.
Measurements:

* S3: put and get of 8 objects of 64 MB, 8 at a time; resident memory of the server afterwards and at its peak; then
  puts and gets of 4 KiB per second over 4 keep-alive connections, without boto3, whose own cost would hide the
  server's.
* API: ListTrainingJobs and DescribeTrainingJob by boto3, one after the other, on an idle server and during 4 uploads;
  calls per second, median and 95th percentile.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import checkout
from botocore.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START_LIMIT_S = 60.0
SMALL_BYTES = 4096
SMALL_CONNECTIONS = 4
BUCKET = "benchmark"
ROLE = "arn:aws:iam::123456789012:role/TrainyardExecutionRole"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cpu-amzn2023-sagemaker"
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request,"
    " SignedHeaders=host, Signature=0"
}
S3_ALONE = """
import sys, threading
from pathlib import Path
from sagemaker_engine.http.server import serve
from sagemaker_engine.s3.application import S3Application
from sagemaker_engine.s3.object_store import ObjectStore
serve(S3Application(ObjectStore(Path(sys.argv[2]))), port=int(sys.argv[1]))
threading.Event().wait()
"""


@dataclass(kw_only=True)
class Contender:
    """A server under test and its figures, one value per round."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    figures: dict[str, list[float]] = field(default_factory=dict)

    def client(self, service: str, *, connections: int = 16) -> Any:
        """Return a boto3 client of this server."""
        return boto3.client(
            service,
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",  # noqa: S106 (any is accepted)
            config=Config(max_pool_connections=connections, retries={"total_max_attempts": 1}),
        )

    def record(self, figure: str, value: float) -> None:
        """Store one round's value."""
        self.figures.setdefault(figure, []).append(value)

    def memory_mb(self, field_name: str) -> float:
        """Return VmRSS (now) or VmHWM (peak) of the server in MB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{field_name}:"):
                return int(line.split()[1]) / 1000
        return float("nan")


def main() -> None:
    """Run the comparison and print it."""
    options = _options()
    root = Path(tempfile.mkdtemp(prefix="trainyard-benchmark-", dir=options.folder))
    contenders: list[Contender] = []
    try:
        contenders += [start_ours(root, alone=options.alone), start_moto(root)]
        print(__doc__, f"Servers: {', '.join(c.name for c in contenders)}.", sep="\n")
        for number in range(options.repeats):
            for contender in contenders if number % 2 == 0 else reversed(contenders):
                measure(contender, options)
        report(contenders, repeats=options.repeats)
    finally:
        for contender in contenders:
            contender.process.terminate()
            contender.process.wait()
        shutil.rmtree(root)


def measure(contender: Contender, options: argparse.Namespace) -> None:
    """Run one round of every measurement against one server."""
    s3 = contender.client("s3", connections=options.parallel)
    s3.create_bucket(Bucket=BUCKET)
    if options.only != "api":
        large_objects(contender, s3, options)
        small_objects(contender, options.seconds)
    if options.only != "s3" and not options.alone:
        api_calls(contender, s3, options)


def large_objects(contender: Contender, s3: Any, options: argparse.Namespace) -> None:
    """Measure MB/s of parallel puts and gets, and the server's memory afterwards."""
    body = os.urandom(options.object_mb * 1_000_000)
    keys = [f"large/{number}" for number in range(options.objects)]
    megabytes = len(keys) * len(body) / 1e6

    def put(key: str) -> None:
        s3.put_object(Bucket=BUCKET, Key=key, Body=body)

    def get(key: str) -> None:
        stream = s3.get_object(Bucket=BUCKET, Key=key)["Body"]
        while stream.read(1 << 20):
            pass

    for name, action in (("put", put), ("get", get)):
        with ThreadPoolExecutor(options.parallel) as pool:
            began = time.perf_counter()
            list(pool.map(action, keys))
            contender.record(f"large {name}, MB/s", megabytes / (time.perf_counter() - began))
    contender.record("memory after, MB", contender.memory_mb("VmRSS"))
    contender.record("memory peak, MB", contender.memory_mb("VmHWM"))
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})


def small_objects(contender: Contender, seconds: float) -> None:
    """Measure requests per second of small puts and gets over a few keep-alive connections."""
    for method in ("PUT", "GET"):
        counts = [0] * SMALL_CONNECTIONS
        deadline = time.perf_counter() + seconds

        def work(slot: int, method: str = method, deadline: float = deadline) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", contender.port)
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            body = bytes(SMALL_BYTES) if method == "PUT" else None
            while time.perf_counter() < deadline:
                number = counts[slot] % 20  # noqa: B023 (joined before the next round)
                connection.request(method, f"/{BUCKET}/small/{slot}/{number}", body, SIGNED)
                response = connection.getresponse()
                response.read()
                if response.status != http.client.OK:
                    raise RuntimeError(f"{contender.name}: {method} gave {response.status}")
                counts[slot] += 1  # noqa: B023 (joined before the next round)
            connection.close()

        with ThreadPoolExecutor(SMALL_CONNECTIONS) as pool:
            list(pool.map(work, range(SMALL_CONNECTIONS)))
        contender.record(f"small {method.lower()}, 1/s", sum(counts) / seconds)


def api_calls(contender: Contender, s3: Any, options: argparse.Namespace) -> None:
    """Measure SageMaker calls on an idle server, then during uploads."""
    sagemaker = contender.client("sagemaker")
    name = "benchmark"
    if not sagemaker.list_training_jobs(NameContains=name)["TrainingJobSummaries"]:
        sagemaker.create_training_job(**training_job(name))
    _time_calls(contender, sagemaker, name, "idle", options.seconds)
    with streaming(s3, os.urandom(options.object_mb * 1_000_000)):
        _time_calls(contender, sagemaker, name, "beside puts", options.seconds)


def _time_calls(
    contender: Contender, sagemaker: Any, name: str, label: str, seconds: float
) -> None:
    calls: dict[str, Callable[[], object]] = {
        "list": sagemaker.list_training_jobs,
        "describe": lambda: sagemaker.describe_training_job(TrainingJobName=name),
    }
    for verb, call in calls.items():
        took_ms: list[float] = []
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            began = time.perf_counter()
            call()
            took_ms.append((time.perf_counter() - began) * 1e3)
        contender.record(f"{verb} {label}, 1/s", 1e3 / statistics.fmean(took_ms))
        contender.record(f"{verb} {label}, p50 ms", statistics.median(took_ms))
        contender.record(f"{verb} {label}, p95 ms", statistics.quantiles(took_ms, n=20)[-1])


class streaming:  # noqa: N801 (used as a verb)
    """Repeat 4 parallel puts of `body` for the duration of the block."""

    def __init__(self, s3: Any, body: bytes) -> None:
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._put, args=(s3, body, number)) for number in range(4)
        ]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _put(self, s3: Any, body: bytes, number: int) -> None:
        while not self._stop.is_set():
            s3.put_object(Bucket=BUCKET, Key=f"stream/{number}", Body=body)


def training_job(name: str) -> dict[str, Any]:
    """Return the smallest request that both servers accept."""
    return {
        "TrainingJobName": name,
        "RoleArn": ROLE,
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/output"},
        "ResourceConfig": {
            "InstanceType": "ml.m5.large",
            "InstanceCount": 1,
            "VolumeSizeInGB": 10,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }


def start_ours(root: Path, *, alone: bool) -> Contender:
    """Start the engine, or only its S3."""
    port = _free_port()
    if alone:
        command = [sys.executable, "-c", S3_ALONE, str(port), str(root / "s3")]
        return _started("trainyard (S3 alone)", command, port)
    command = [sys.executable, "-m", "sagemaker_engine"]
    command += ["--port", str(port), "--root", str(root / "engine")]
    return _started("trainyard", command, port)


def start_moto(root: Path) -> Contender:
    """Start moto's server."""
    port = _free_port()
    server = Path(sys.executable).with_name("moto_server")
    return _started("moto", [str(server), "-H", "127.0.0.1", "-p", str(port)], port, folder=root)


def _started(
    name: str, command: list[str], port: int, *, folder: Path = checkout.REPOSITORY
) -> Contender:
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return Contender(name=name, process=process, port=port)
        time.sleep(0.1)
    process.kill()
    raise RuntimeError(f"{name} did not start: {' '.join(command)}")


def report(contenders: list[Contender], *, repeats: int) -> None:
    """Print one line per figure: both medians with their ranges, and the ratio of the medians."""
    ours, peer = contenders
    print(f"\nmedian of {repeats} rounds (lowest to highest); ratio = {ours.name} / {peer.name}")
    print(f"{'figure':28}{ours.name:>34}{peer.name:>34}{'ratio':>9}")
    for figure, values in ours.figures.items():
        ratio = statistics.median(values) / statistics.median(peer.figures[figure])
        columns = "".join(f"{text:>34}" for text in _ranges(values, peer.figures[figure]))
        print(f"{figure:28}{columns}{ratio:>9.2f}")


def _ranges(*rows: list[float]) -> Iterator[str]:
    for row in rows:
        yield f"{statistics.median(row):,.1f} ({min(row):,.1f} - {max(row):,.1f})"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the engine with moto's server.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["s3", "api"], default=None)
    parser.add_argument("--alone", action="store_true", help="serve our S3 without the engine")
    parser.add_argument("--objects", type=int, default=8)
    parser.add_argument("--object-mb", type=int, default=64)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each timed loop")
    parser.add_argument("--folder", help="where the servers keep their data (default: temp)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
