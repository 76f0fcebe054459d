"""Comparison of the final weights of trainings with one interruption, at a random moment, and without.

    python benchmarks/interruptions.py [--seeds 100] [--steps 60] [--intervals 3] [--notice-share 0.5] [--results FILE]

Each seed is one spot training job on two instances of the engine (CreateTrainingJob by boto3, no Airflow), with the
default run's hyperparameters except those below. The seed draws one interruption:

* at a step of the training or, one time in five, while data is downloaded, a checkpoint is written or the model is
  uploaded;
* of all hosts or of one;
* with or without notice.

Two uninterrupted jobs run first. The last line of each interrupted job must have the same SHA-256 of the weights.

The hosts' uplinks are slowed: a checkpoint needs `--intervals` checkpoint intervals to arrive in S3, as measured on the
second uninterrupted job (0: no limit). The interruption then comes only after S3 has a complete checkpoint, so no job
may restart at step 0. Without slow uplinks it comes at any moment. Differences from the default run:

* the length (`--steps`), a fixed checkpoint interval, and less data;
* no evaluation during the training;
* a metric line per step, for the moments of interruptions and the repeated steps.

Results are appended to a file of JSON lines. A second call resumes after an interrupted first one. It counts existing
results only if settings, code and uninterrupted weights are the same. The exit status is 0 only if all weights are
equal and, with slow uplinks, all jobs resumed from a checkpoint.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkout import SCRIPTS
from training_jobs import (
    BUCKET,
    JOB_LIMIT_S,
    PREFIX,
    MeasuredEngine,
    running_engine,
    shard,
    training_job,
)

from chaos.training_log import LOG_GROUP, cost_of, read_marks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DEFAULT_RUN = {
    "model": "gpt",
    "num_layers": 4,
    "num_heads": 4,
    "hidden_size": 128,
    "sequence_length": 256,
    "global_batch_size": 16,
    "micro_batch_size": 8,
    "learning_rate": 4e-3,
    "precision": "fp32",
    "seed": 0,
}
DIFFERENT = {"eval_interval": 0, "log_interval": 1, "num_threads": 1}
STATES = ("Downloading", "Checkpointing", "Uploading")
STATES_WITH_CHECKPOINTS = ("Checkpointing", "Uploading")
WEIGHTS = re.compile(r"weights_sha256=([0-9a-f]{64})")
NOTICE_S = 30.0
TIME_SCALE = 0.02
BYTES_PER_MEGABYTE = 1_000_000
CHECKPOINT = re.compile(r"/(step-\d+)/([^/]+)$")
POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """One seed's interruption: its moment, its hosts, and the seconds of notice."""

    seed: int
    at: Mapping[str, Any]
    hosts: str | list[str]
    notice_s: float

    def fault(self) -> dict[str, Any]:
        """Return the interruption as a fault of the engine."""
        return {
            "id": f"seed-{self.seed}",
            "what": "interrupt",
            "at": self.at,
            "hosts": self.hosts,
            "notice_s": self.notice_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of one seed."""

    settings: str
    seed: int
    at: Mapping[str, Any]
    hosts: str | list[str]
    notice_s: float
    status: str
    interruptions: int
    weights_sha256: str
    uninterrupted_sha256: str
    megabytes_per_s: float
    reached: int
    resumed_at: int
    seconds_lost: float
    job_seconds: float
    failure_reason: str = ""

    @property
    def is_equal(self) -> bool:
        """Return whether the weights are those of the uninterrupted job, after exactly one interruption."""
        same = self.weights_sha256 == self.uninterrupted_sha256
        return same and self.status == "Completed" and self.interruptions == 1

    @property
    def is_good(self) -> bool:
        """Return whether the weights are equal and, if S3 had a complete checkpoint, the job resumed from one."""
        return self.is_equal and (self.resumed_at > 0 or not self.megabytes_per_s)

    @property
    def steps_redone(self) -> int:
        """Steps that were repeated."""
        return self.reached - self.resumed_at


def main() -> int:
    """Run the missing seeds, print the distribution, and return the exit status."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the engine ends, too
    hyperparameters = {
        **DEFAULT_RUN,
        **DIFFERENT,
        "max_steps": options.steps,
        "warmup_steps": max(1, options.steps // 10),
        "checkpoint_interval": options.checkpoint_interval,
        **{
            key: json.loads(value)
            for key, _, value in (each.partition("=") for each in options.set)
        },
    }
    settings = fingerprint(hyperparameters, options)
    print(f"settings and code {settings}; results in {options.results}")
    done = {each.seed: each for each in read_results(options.results, settings)}
    with tempfile.TemporaryDirectory(prefix="interruptions-") as folder:
        root = Path(folder)
        shard(root / "dataset")
        with running_engine(root / "engine", time_scale=TIME_SCALE) as engine:
            engine.upload(root / "dataset")
            weights, whole_s = uninterrupted(engine, hyperparameters)
            bandwidth = uplink(engine, hyperparameters, options.intervals)
            for seed in range(options.seeds):
                if seed in done and done[seed].uninterrupted_sha256 == weights:
                    continue
                interruption = draw(
                    seed,
                    steps=options.steps,
                    notice_share=options.notice_share,
                    states=STATES_WITH_CHECKPOINTS if bandwidth else STATES,
                )
                done[seed] = interrupt(
                    engine, interruption, hyperparameters, weights, settings, bandwidth
                )
                append(options.results, done[seed])
                print(line(done[seed]), flush=True)
    results = [done[seed] for seed in range(options.seeds)]
    report(results, whole_s)
    return 0 if all(result.is_good for result in results) else 1


def draw(
    seed: int, *, steps: int, notice_share: float, states: Sequence[str] = STATES
) -> Interruption:
    """Return the interruption of a seed."""
    draws = random.Random(seed)  # noqa: S311  # a seeded choice of moments
    in_state = draws.random() < 0.2
    at = {"state": draws.choice(states)} if in_state else {"step": draws.randrange(steps)}
    return Interruption(
        seed=seed,
        at=at,
        hosts=draws.choice(("all", ["algo-1"], ["algo-2"])),
        notice_s=NOTICE_S if draws.random() < notice_share else 0.0,
    )


def uninterrupted(engine: MeasuredEngine, hyperparameters: Mapping[str, Any]) -> tuple[str, float]:
    """Run two uninterrupted jobs; return the SHA-256 of their weights and the seconds of the second.

    Raises:
        RuntimeError: the two differ, or one did not complete, so that a comparison is not possible.
    """
    jobs = []
    for name in ("uninterrupted-1", "uninterrupted-2"):
        engine.put_faults([])
        began = time.monotonic()
        engine.sagemaker.create_training_job(**training_job(name, hyperparameters, is_spot=True))
        described = engine.finished(name)
        jobs.append((weights_of(engine, name), time.monotonic() - began))
        print(f"{name}: {described['TrainingJobStatus']} in {jobs[-1][1]:.1f} s, {jobs[-1][0]}")
    if jobs[0][0] != jobs[1][0] or not jobs[0][0]:
        raise RuntimeError(f"two uninterrupted jobs do not end with the same weights: {jobs}")
    return jobs[1]


def uplink(engine: MeasuredEngine, hyperparameters: Mapping[str, Any], intervals: float) -> float:
    """Return the megabytes per second at which a checkpoint needs `--intervals` intervals to arrive; 0 for no limit.

    Measured on the second uninterrupted job: its checkpoints' size, and its median seconds per step.

    Raises:
        RuntimeError: the job has no checkpoint.
    """
    if not intervals:
        return 0.0
    name = "uninterrupted-2"
    newest = max(checkpoints(engine, name).items(), default=None)
    if newest is None:
        raise RuntimeError(f"{name} has left no checkpoint in S3")
    num_bytes = sum(newest[1].values())
    times = [mark.at for mark in read_marks(engine.logs, [name]) if not mark.is_start]
    step_s = statistics.median(after - before for before, after in pairwise(times))
    interval_s = step_s * hyperparameters["checkpoint_interval"]
    bandwidth = num_bytes / BYTES_PER_MEGABYTE / (intervals * interval_s)
    print(
        f"a checkpoint has {num_bytes / BYTES_PER_MEGABYTE:.2f} MB, one comes every {interval_s:.2f} s; uplinks of "
        f"{bandwidth:.3f} MB/s"
    )
    return max(0.001, round(bandwidth, 3))


def checkpoints(engine: MeasuredEngine, name: str) -> dict[str, dict[str, int]]:
    """Return a job's checkpoints in S3: the size of each file in bytes, by `step-N`."""
    pages = engine.s3.get_paginator("list_objects_v2").paginate(
        Bucket=BUCKET, Prefix=f"{PREFIX}/checkpoints/{name}/step-"
    )
    found: dict[str, dict[str, int]] = {}
    for each in pages.build_full_result().get("Contents", ()):
        if match := CHECKPOINT.search(each["Key"]):
            found.setdefault(match[1], {})[match[2]] = each["Size"]
    return found


def has_whole_checkpoint(engine: MeasuredEngine, name: str) -> bool:
    """Return whether S3 has all files of the manifest of at least one checkpoint."""
    for step, sizes in checkpoints(engine, name).items():
        if "manifest.json" not in sizes:
            continue
        key = f"{PREFIX}/checkpoints/{name}/{step}/manifest.json"
        try:
            manifest = json.loads(engine.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())
        except (engine.s3.exceptions.NoSuchKey, ValueError):
            continue  # Deleted meanwhile, or uploaded half written.
        if all(sizes.get(file) == entry["bytes"] for file, entry in manifest["files"].items()):
            return True
    return False


def wait_for_checkpoint(engine: MeasuredEngine, name: str) -> int:
    """Wait until S3 has a complete checkpoint of a job; return the job's step at that time.

    Raises:
        RuntimeError: the job ended, or ran for JOB_LIMIT_S, before S3 had one.
    """
    until = time.monotonic() + JOB_LIMIT_S
    while not has_whole_checkpoint(engine, name):
        status = engine.sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"]
        if status != "InProgress" or time.monotonic() > until:
            raise RuntimeError(f"{name} is {status}, and S3 has no whole checkpoint of it")
        time.sleep(POLL_S)
    return max((mark.step for mark in read_marks(engine.logs, [name])), default=0)


def interrupt(
    engine: MeasuredEngine,
    interruption: Interruption,
    hyperparameters: Mapping[str, Any],
    weights: str,
    settings: str,
    bandwidth: float,
) -> Result:
    """Run one job with one interruption and return the result."""
    name = f"interrupted-{interruption.seed}"
    slow = [{"id": "uplink", "what": "slow_uplink", "megabytes_per_s": bandwidth}]
    fault = {**interruption.fault(), "job": name}
    engine.put_faults(slow if bandwidth else [fault])
    began = time.monotonic()
    engine.sagemaker.create_training_job(**training_job(name, hyperparameters, is_spot=True))
    if bandwidth:
        reached, steps = wait_for_checkpoint(engine, name), hyperparameters["max_steps"]
        if "step" in fault["at"]:  # The same share of the steps that are left.
            left = max(0, steps - 1 - reached)
            fault["at"] = {"step": reached + fault["at"]["step"] * left // steps}
        engine.put_faults([*slow, fault])
    described = engine.finished(name)
    job_seconds = time.monotonic() - began
    fired, marks = engine.fired_at("interrupt"), read_marks(engine.logs, [name])
    cost = cost_of(fired[0], marks, until=float("inf")) if fired else None
    return Result(
        settings=settings,
        **(asdict(interruption) | {"at": fault["at"]}),
        megabytes_per_s=bandwidth,
        status=described["TrainingJobStatus"],
        interruptions=len(fired),
        weights_sha256=weights_of(engine, name),
        uninterrupted_sha256=weights,
        reached=cost.reached if cost else -1,
        resumed_at=cost.resumed_at if cost else -1,
        seconds_lost=cost.seconds if cost else 0.0,
        job_seconds=job_seconds,
        failure_reason=described.get("FailureReason", ""),
    )


def weights_of(engine: MeasuredEngine, name: str) -> str:
    """Return the SHA-256 of the final weights that the job printed last; empty if it printed none."""
    streams = engine.logs.describe_log_streams(
        logGroupName=LOG_GROUP, logStreamNamePrefix=f"{name}/algo-1-"
    )["logStreams"]
    for stream in sorted(streams, key=lambda each: each["creationTime"], reverse=True):
        answer = engine.logs.get_log_events(
            logGroupName=LOG_GROUP, logStreamName=stream["logStreamName"], startFromHead=False
        )
        for event in reversed(answer["events"]):
            if found := WEIGHTS.search(event["message"]):
                return found[1]
    return ""


def report(results: list[Result], whole_s: float) -> None:
    """Print the number of equal results, and the steps and seconds that an interruption cost."""
    equal = sum(result.is_equal for result in results)
    print(f"\n{equal} of {len(results)} jobs ended with the uninterrupted job's weights")
    print(f"{sum(result.resumed_at > 0 for result in results)} resumed from a whole checkpoint")
    for result in results:
        if not result.is_good:
            print(f"  {'FROM STEP 0' if result.is_equal else 'NOT EQUAL'}: {result}")
    groups = {
        "without notice": [each for each in results if not each.notice_s],
        "with notice": [each for each in results if each.notice_s],
    }
    for label, group in groups.items():
        if group:
            redone = [each.steps_redone for each in group]
            print(f"{label}: {len(group)} interruptions")
            print(f"  steps redone: {spread(redone)}")
            print(f"    distribution: {' '.join(counted(redone))}")
            print(f"  seconds lost: {spread([each.seconds_lost for each in group])}")
    print(f"an uninterrupted job took {whole_s:.1f} s")


def spread(values: list[float] | list[int]) -> str:
    """Return lowest, median, 90th percentile and highest of the values as text."""
    ninety = (
        statistics.quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0]
    )
    median = statistics.median(values)
    return f"min {min(values):.1f}, median {median:.1f}, p90 {ninety:.1f}, max {max(values):.1f}"


def counted(values: list[int]) -> Iterator[str]:
    """Yield `value:times` for each value that occurs."""
    for value, times in sorted(Counter(values).items()):
        yield f"{value}:{times}"


def line(result: Result) -> str:
    """Return one result as a line."""
    where = " ".join(f"{key} {value}" for key, value in result.at.items())
    notice = "with notice" if result.notice_s else "no notice"
    verdict = "equal" if result.is_equal else f"NOT EQUAL ({result.status})"
    return (
        f"seed {result.seed:3}: {where}, {notice}, hosts {result.hosts}: step {result.reached}, "
        f"resumed at {result.resumed_at}, {result.steps_redone} redone, "
        f"{result.seconds_lost:.1f} s lost, {verdict}"
    )


def fingerprint(hyperparameters: Mapping[str, Any], options: argparse.Namespace) -> str:
    """Return a digest of the settings and the training code; results are counted together only if it is equal."""
    digest = hashlib.sha256(
        json.dumps([hyperparameters, options.notice_share, options.intervals]).encode()
    )
    for path in sorted(SCRIPTS.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def read_results(path: Path, settings: str) -> list[Result]:
    """Return the results in the file with the same settings and code."""
    if not path.exists():
        return []
    found = [Result(**json.loads(text)) for text in path.read_text().splitlines()]
    return [each for each in found if each.settings == settings]


def append(path: Path, result: Result) -> None:
    """Append one result to the file."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds, from 0 (100)")
    parser.add_argument("--steps", type=int, default=60, help="steps of each job (60)")
    parser.add_argument(
        "--notice-share", type=float, default=0.5, help="share of interruptions with notice (0.5)"
    )
    parser.add_argument(
        "--checkpoint-interval", type=int, default=5, help="steps between checkpoints (5)"
    )
    parser.add_argument(
        "--intervals",
        type=float,
        default=3.0,
        help="checkpoint intervals that a checkpoint needs to arrive in S3; 0: no limit (3)",
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="other hyperparameters"
    )
    parser.add_argument(
        "--results", type=Path, default=Path("interruptions.jsonl"), help="the file of results"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
