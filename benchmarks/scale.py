"""Cost of following thousands of jobs in several triggerers, with a service that throttles and answers unreliably.

    python benchmarks/scale.py [--jobs 5000] [--triggerers 4] [--kinds feed stock] [--unreliable 0.05] [--rate 10]
                               [--run-s 90] [--spread-s 60] [--lines-per-s 0.1] [--limit-s 600]

Each triggerer is a process with one event loop that follows every n-th job, as Airflow distributes triggers. The
service (`tests/plugins/throttling_service.py`) allows `--rate` calls per second of each operation, for all triggerers
together. It omits the share `--unreliable` of the entries of lists and of log events, repeats the same share, and
shuffles them. Jobs start together and end one after another within `--spread-s` after `--run-s`. An end is missed if
its trigger has no event within `--limit-s`, and an error if the trigger fails. `feed` is the trigger of Trainyard's
operators, `stock` is Airflow's SageMakerTrigger. CPU and memory are those of all triggerers, without the memory of
imports.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any

import checkout  # noqa: F401  # puts the packages on the import path
from triggers import asked, far_end, made, memory_mb


async def followed(options: argparse.Namespace) -> dict[str, Any]:
    """Follow this triggerer's jobs and return the figures."""
    begun_mb, used_mb = memory_mb(), [memory_mb()]
    missed, errors, seen = [], [], []

    async def monitor() -> None:
        while True:
            await asyncio.sleep(0.5)
            used_mb.append(memory_mb())

    async def follow(number: int) -> None:
        ended = options.began + options.run_s + options.spread_s * number / options.num_jobs
        try:
            async with asyncio.timeout(options.limit_s):
                async for _ in made(options.kind, number).run():
                    seen.append(time.time() - ended)
                    return
        except TimeoutError:
            missed.append(number)
        except Exception as error:  # noqa: BLE001  # counted
            errors.append(f"{type(error).__name__}: {error}"[:200])

    watching = asyncio.create_task(monitor())
    cpu_s = time.process_time()
    own = range(options.number, options.num_jobs, options.triggerers)
    await asyncio.gather(*[follow(each) for each in own])
    watching.cancel()
    return {
        "seen": seen,
        "missed": len(missed),
        "errors": errors,
        "memory_mb": max(used_mb) - begun_mb,
        "cpu_s": time.process_time() - cpu_s,
    }


def triggerer(options: argparse.Namespace) -> None:
    """Print one triggerer's figures as JSON; called in a separate process."""
    warnings.simplefilter("ignore")
    import airflow.providers.amazon.aws.hooks.sagemaker  # noqa: F401  # as a triggerer has

    made(options.kind, 0)
    for name, level in ((None, logging.ERROR), ("trainyard_airflow", logging.CRITICAL)):
        logging.getLogger(name).setLevel(level)
    print(json.dumps(asyncio.run(followed(options))))


def row_of(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one kind over all triggerers."""
    more = ["--lines-per-s", str(options.lines_per_s), "--unreliable", str(options.unreliable)]
    with far_end(options.rate, *more) as url, tempfile.TemporaryDirectory() as home:
        shape = {"num_jobs": options.jobs, "run_s": options.run_s, "spread_s": options.spread_s}
        began = asked(f"{url}/start", shape)["began"]
        running = [
            subprocess.Popen(
                [sys.executable, __file__, *arguments(kind, number, began, options)],
                env=environment(home, url),
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(options.triggerers)
        ]
        found = [json.loads(each.communicate()[0].splitlines()[-1]) for each in running]
        calls = asked(f"{url}/calls")
    seen = sorted(each for figures in found for each in figures["seen"])
    errors = [each for figures in found for each in figures["errors"]]
    return {
        "seen": len(seen),
        "missed": sum(figures["missed"] for figures in found),
        "errors": len(errors),
        "error": max(set(errors), key=errors.count) if errors else "",
        "p50_s": seen[len(seen) // 2] if seen else float("nan"),
        "p95_s": seen[int(0.95 * len(seen))] if seen else float("nan"),
        "calls": sum(calls.values()) - calls.get("throttled", 0),
        "throttled": calls.get("throttled", 0),
        "by_operation": calls,
        "memory_mb": sum(figures["memory_mb"] for figures in found),
        "cpu_s": sum(figures["cpu_s"] for figures in found),
    }


def arguments(kind: str, number: int, began: float, options: argparse.Namespace) -> list[str]:
    """Return the options of one triggerer's process."""
    given = {
        "kind": kind,
        "number": number,
        "num-jobs": options.jobs,
        "began": began,
        "triggerers": options.triggerers,
        "limit-s": options.limit_s,
        "run-s": options.run_s,
        "spread-s": options.spread_s,
    }
    return [part for name, value in given.items() for part in (f"--{name}", str(value))]


def environment(home: str, url: str) -> dict[str, str]:
    """Return a triggerer's environment, with the service as its AWS connection."""
    connection = {
        "conn_type": "aws",
        "login": "A" * 20,
        "password": "s" * 40,
        "extra": {"region_name": "us-east-1", "endpoint_url": url},
    }
    return {
        **os.environ,
        "AIRFLOW_HOME": home,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "0",
        "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(connection),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--triggerers", type=int, default=4)
    parser.add_argument("--kinds", nargs="+", default=["feed", "stock"])
    parser.add_argument("--run-s", type=float, default=90.0)
    parser.add_argument("--spread-s", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--lines-per-s", type=float, default=0.1)
    parser.add_argument("--unreliable", type=float, default=0.05)
    parser.add_argument("--limit-s", type=float, default=600.0)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--num-jobs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        triggerer(options)
        return
    print(
        "| trigger | jobs | ends seen | missed | errors | p50 / p95 s | calls | throttled | memory MB | CPU s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for kind in options.kinds:
        got = row_of(kind, options)
        print(
            f"| {kind} | {options.jobs} | {got['seen']} | {got['missed']} | {got['errors']} "
            f"| {got['p50_s']:.1f} / {got['p95_s']:.1f} | {got['calls']} | {got['throttled']} "
            f"| {got['memory_mb']:.0f} | {got['cpu_s']:.0f} |",
            flush=True,
        )
        print(f"  {kind}: {got['by_operation']} {got['error']}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
