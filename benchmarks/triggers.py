"""Cost of following many jobs in a triggerer, and the delay until their ends are seen.

    python benchmarks/triggers.py [--jobs 200 1000] [--kinds feed alone stock] [--run-s 47] [--spread-s 20] [--rate 10]

Each row is a separate process with one event loop, like that of a triggerer. The service is another process that allows
`--rate` calls per second of each operation (`tests/plugins/throttling_service.py`). All jobs start together and end one
after another within `--spread-s`.

* `feed` is the trigger, `alone` the same trigger with separate polls per job.
* `stock` is Airflow's SageMakerTrigger, which does not forward logs.

Latency is from a job's end to its event, and "blocked" is the delay of a sleep of 50 ms. Calls per second are counted
from 10 s after the start, when all jobs were polled once, to the first end. A real triggerer has a log pipe and a
database in addition.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkout import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVICE = REPOSITORY / "tests" / "plugins" / "throttling_service.py"
SETTLED_S = 10.0
LIMIT_S = 300.0


@contextmanager
def far_end(rate: float, *more: str) -> Iterator[str]:
    """Run the service, with more of its options; yield its URL."""
    command = [sys.executable, str(SERVICE), "--rate", str(rate), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


def asked(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the service's response."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(url, data) as answer:  # noqa: S310  # our own
        return dict(json.load(answer))


def memory_mb() -> float:
    """Return this process's resident memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def made(kind: str, number: int) -> Any:
    """Return a trigger of one job."""
    if kind == "stock":
        from airflow.providers.amazon.aws.triggers.sagemaker import SageMakerTrigger

        return SageMakerTrigger(
            job_name=f"job-{number}",
            job_type="training",
            waiter_delay=10,
            waiter_max_attempts=1000,
        )
    from trainyard.sagemaker_api.job_kinds import JobKind
    from trainyard_airflow.hooks.aws_clients import ConnectionArguments
    from trainyard_airflow.triggers.followed import Followed
    from trainyard_airflow.triggers.job import JobTrigger

    followed = Followed(
        kind=JobKind.TRAINING,
        job_name=f"job-{number}",
        connection=ConnectionArguments(),
        poll_interval_s=10.0,
        has_secrets=False,
    )
    return JobTrigger(**followed.to_dict())


async def followed(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Follow all jobs and return the figures."""
    begun = memory_mb()
    shape = {"num_jobs": options.num_jobs, "run_s": options.run_s, "spread_s": options.spread_s}
    began = asked(f"{url}/start", shape)["began"]
    late_s, used_mb, counts = [0.0], [begun], {}

    async def monitor() -> None:
        while True:
            at = time.perf_counter()
            await asyncio.sleep(0.05)
            late_s.append(time.perf_counter() - at - 0.05)
            used_mb.append(memory_mb())
            age_s = time.time() - began
            for name, moment in (("first", SETTLED_S), ("last", options.run_s)):
                if name not in counts and age_s >= moment:
                    calls = await asyncio.to_thread(asked, f"{url}/calls")
                    counts[name] = sum(calls.values()) - calls.get("throttled", 0), age_s

    async def latency_s(number: int) -> float:
        async for _ in made(options.kind, number).run():
            break
        ended = began + options.run_s + options.spread_s * number / options.num_jobs
        return time.time() - ended

    watching = asyncio.create_task(monitor())
    cpu_s = time.process_time()
    async with asyncio.timeout(LIMIT_S):
        seen = sorted(await asyncio.gather(*[latency_s(each) for each in range(options.num_jobs)]))
    watching.cancel()
    calls = asked(f"{url}/calls")
    (first, at), (last, until) = counts["first"], counts["last"]
    return {
        "p50_s": statistics.median(seen),
        "p95_s": seen[int(0.95 * len(seen))],
        "blocked_s": max(late_s),
        "calls_per_s": (last - first) / (until - at),
        "throttled": calls.get("throttled", 0),
        "memory_mb": max(used_mb) - begun,
        "cpu_s": time.process_time() - cpu_s,
        "calls": calls,
    }


def measure(options: argparse.Namespace) -> None:
    """Print one row's figures as JSON; called in a separate process."""
    import warnings

    warnings.simplefilter("ignore")
    if options.kind == "alone":
        from trainyard_airflow.triggers import job

        job.FED = frozenset()
    # What a triggerer has imported before its first trigger.
    import airflow.providers.amazon.aws.hooks.sagemaker  # noqa: F401

    made(options.kind, 0)
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("trainyard_airflow").setLevel(logging.ERROR)
    print(json.dumps(asyncio.run(followed(options.url, options))))


def row_of(kind: str, num_jobs: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one row; `{}` if it was not complete in time."""
    with far_end(options.rate) as url, tempfile.TemporaryDirectory() as home:
        extra = {"region_name": "us-east-1", "endpoint_url": url}
        keys = {"login": "A" * 20, "password": "s" * 40}
        environment = {
            **os.environ,
            "AIRFLOW_HOME": home,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "0",
            "AIRFLOW_CONN_AWS_DEFAULT": json.dumps({"conn_type": "aws", "extra": extra, **keys}),
        }
        command = [
            sys.executable,
            __file__,
            "--kind",
            kind,
            "--num-jobs",
            str(num_jobs),
            "--url",
            url,
        ]
        command += ["--run-s", str(options.run_s), "--spread-s", str(options.spread_s)]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=False
        )
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if done.returncode == 0 else {}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=[200, 1000])
    parser.add_argument("--kinds", nargs="+", default=["feed", "alone", "stock"])
    parser.add_argument("--run-s", type=float, default=47.0)
    parser.add_argument("--spread-s", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--num-jobs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        measure(options)
        return
    print("| trigger | jobs | p50 / p95 s | blocked s | calls/s | throttled | memory MB | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for num_jobs in options.jobs:
        for kind in options.kinds:
            got = row_of(kind, num_jobs, options)
            if not got:
                print(
                    f"| {kind} | {num_jobs} | not all within {LIMIT_S:.0f} s | | | | | |",
                    flush=True,
                )
                continue
            print(
                f"| {kind} | {num_jobs} | {got['p50_s']:.2f} / {got['p95_s']:.2f} | {got['blocked_s']:.2f} "
                f"| {got['calls_per_s']:.1f} | {got['throttled']} | {got['memory_mb']:.0f} | {got['cpu_s']:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
