"""Share of a fault-free training's progress that is kept under a fault every 30 seconds.

    python benchmarks/goodput.py [--minutes 30] [--every-s 30] [--rounds 1] [--seed 0] [--plain-interval 100]
                                 [--ways trainyard plain] [--set NAME=VALUE ...] [--results FILE]

A round trains the same number of steps several times on one engine (CreateTrainingJob by boto3, two instances, spot
capacity): without faults, and in each way with a fault every `--every-s` seconds. The seed draws kind, host and notice
of the faults, the same for all ways. A failed job is restarted at once from its checkpoints, as by Airflow's retry.

The ways are `trainyard` and `plain`. `trainyard` is the training as the end-to-end run requests it: SIGTERM reaches the
ranks, and the checkpoint interval is chosen. `plain` is the same script without these two features, with a checkpoint
every `--plain-interval` steps. Both restart from their last checkpoint.

"Progress" is the training's steps per wall second, from its first step to its last, divided by that of the round's run
without faults. Other load on the machine affects both, so compare ratios over several rounds. "Stepping" needs no
second run. It is the share of the wall time in surviving steps, with the lost seconds by cause, as in the run's report.
The exit status is 0 only if all weights are equal.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkout import REPOSITORY
from interruptions import weights_of
from training_jobs import BUCKET, PREFIX, MeasuredEngine, running_engine, shard, training_job

from trainyard.runs.builder import build_run_record, job_record
from trainyard.runs.continuity.log_lines import LogLine
from trainyard.runs.continuity.measure import measure_continuity
from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
MODEL = {
    "model": "gpt",
    "num_layers": 2,
    "num_heads": 4,
    "hidden_size": 64,
    "sequence_length": 128,
    "global_batch_size": 16,
    "micro_batch_size": 8,
    "learning_rate": 4e-3,
    "precision": "fp32",
    "seed": 0,
    "eval_interval": 0,
    "num_threads": 1,
}
TIME_SCALE = 0.02
CALIBRATION_STEPS = 300
MOST_RETRIES = 30  # of RetryStrategy, the service's maximum
POLL_S = 0.2
SLOW_MEGABYTES_PER_S, SLOW_S = 0.5, 10.0
KINDS = ("notice", "no notice", "kill rank", "kill host", "slow uplink")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputRun:
    """Figures of one training: its way, its steps, and its seconds by cause.

    Attributes:
        wall_seconds: seconds from the first start to the last step.
        num_faults: executed faults, by kind.
        seconds: seconds by cause of `trainyard.runs.goodput`.
    """

    way: str
    steps: int
    wall_seconds: float
    weights_sha256: str
    num_jobs: int
    starts: int
    steps_redone: int
    stepping: float
    num_faults: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def steps_per_s(self) -> float:
        """Return the surviving steps per wall second."""
        return self.steps / self.wall_seconds


def main() -> int:
    """Run the rounds, print a table, and return the exit status."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the engine ends, too
    hyperparameters = MODEL | {
        key: json.loads(value) for key, _, value in (each.partition("=") for each in options.set)
    }
    rounds = []
    with tempfile.TemporaryDirectory(prefix="goodput-") as folder:
        root = Path(folder)
        shard(root / "dataset")
        with running_engine(root / "engine", time_scale=TIME_SCALE) as engine:
            engine.upload(root / "dataset")
            steps = options.steps or num_steps(engine, hyperparameters, options.minutes)
            for number in range(options.rounds):
                runs = list(one_round(engine, number, hyperparameters, steps, options))
                rounds.append(runs)
                append(options.results, number, runs)
    print_table(rounds)
    weights = {run.weights_sha256 for runs in rounds for run in runs}
    print(f"weights: {'all equal' if len(weights) == 1 else f'DIFFERENT {weights}'}")
    return 0 if len(weights) == 1 and weights != {""} else 1


def num_steps(engine: MeasuredEngine, hyperparameters: Mapping[str, Any], minutes: float) -> int:
    """Return the steps of a training without faults in this number of minutes."""
    run = train(engine, "calibration", "no faults", hyperparameters, CALIBRATION_STEPS)
    print(f"{1000 / run.steps_per_s:.1f} ms a step; load {os.getloadavg()[0]:.0f}")
    return max(CALIBRATION_STEPS, int(minutes * 60 * run.steps_per_s))


def one_round(
    engine: MeasuredEngine,
    number: int,
    hyperparameters: Mapping[str, Any],
    steps: int,
    options: argparse.Namespace,
) -> Iterator[GoodputRun]:
    """Yield the run without faults, then one run of each way under faults."""
    for way in ("no faults", *options.ways):
        own = {"checkpoint_interval": options.plain_interval} if way == "plain" else {}
        faults = Faults(engine, options.seed + number, options.every_s, way != "no faults")
        name = f"round-{number}-{way.replace(' ', '-')}"
        run = train(engine, name, way, {**hyperparameters, **own}, steps, faults)
        print(f"{name}: {run}; load {os.getloadavg()[0]:.0f}", flush=True)
        yield run


class Faults:
    """A fault every `every_s` seconds, drawn from a seed and put to the engine when it is due."""

    def __init__(self, engine: MeasuredEngine, seed: int, every_s: float, is_on: bool) -> None:
        self._engine, self._every_s, self._is_on = engine, every_s, is_on
        self._draws = random.Random(seed)  # noqa: S311  # a seeded choice of faults
        self._kinds: dict[str, str] = {}
        self._struck: dict[str, str] = {}
        self._next_at = float("inf")

    @property
    def struck(self) -> dict[str, int]:
        """Return the number of executed faults of each kind."""
        self._note()
        return dict(Counter(self._struck.values()))

    def begin(self) -> None:
        """Start the clock, at the training's first steps."""
        if self._is_on and self._next_at == float("inf"):
            self._next_at = time.monotonic() + self._every_s

    def put_when_due(self) -> None:
        """Put the next fault if it is due; it replaces an earlier one that was not executed."""
        if time.monotonic() < self._next_at:
            return
        self._note()
        self._next_at += self._every_s
        name = f"fault-{len(self._kinds)}"
        self._kinds[name] = self._draws.choice(KINDS)
        hosts = self._draws.choice(("all", ["algo-1"], ["algo-2"]))
        self._engine.put_faults([{"id": name, **fault_of(self._kinds[name], hosts)}])

    def _note(self) -> None:
        self._struck |= {
            name: self._kinds[name] for name in self._engine.fired() if name in self._kinds
        }


def fault_of(kind: str, hosts: str | list[str]) -> dict[str, Any]:
    """Return a kind of fault in the engine's form."""
    match kind:
        case "notice":
            return {"what": "interrupt", "hosts": hosts, "notice_s": 30.0}
        case "no notice":
            return {"what": "interrupt", "hosts": hosts}
        case "kill rank":
            return {"what": "kill_rank", "hosts": hosts}
        case "kill host":
            return {"what": "host_failure", "hosts": hosts}
        case _:
            return {
                "what": "slow_uplink",
                "megabytes_per_s": SLOW_MEGABYTES_PER_S,
                "duration_s": SLOW_S,
            }


def train(
    engine: MeasuredEngine,
    name: str,
    way: str,
    hyperparameters: Mapping[str, Any],
    steps: int,
    faults: Faults | None = None,
) -> GoodputRun:
    """Train to the last step, in as many jobs as needed, and return the figures.

    Raises:
        RuntimeError: a job ended neither with success nor with a failure that a retry can fix.
    """
    engine.put_faults([])
    names: list[str] = []
    while True:
        names.append(f"{name}-{len(names) + 1}")
        request = request_of(names[-1], name, way, {**hyperparameters, "max_steps": steps})
        engine.sagemaker.create_training_job(**request)
        status = follow(engine, names[-1], faults)
        if status == "Completed":
            break
        if status != "Failed" or faults is None:
            raise RuntimeError(f"{names[-1]} is {status}")
    return figures(engine, way, steps, names, faults.struck if faults else {})


def request_of(job: str, name: str, way: str, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request of one job of a training; all share its checkpoints."""
    request = training_job(job, hyperparameters, is_spot=True)
    request["CheckpointConfig"] = {"S3Uri": f"s3://{BUCKET}/{PREFIX}/checkpoints/{name}/"}
    request["RetryStrategy"] = {"MaximumRetryAttempts": MOST_RETRIES}
    request["StoppingCondition"] = {
        "MaxRuntimeInSeconds": 36000,
        "MaxWaitTimeInSeconds": 72000,
    }
    if way == "plain":
        for each in ("ContainerEntrypoint", "ContainerArguments"):
            del request["AlgorithmSpecification"][each]
    return request


def follow(engine: MeasuredEngine, name: str, faults: Faults | None) -> str:
    """Wait for a job's end, putting faults meanwhile; return its status."""
    while True:
        described = engine.sagemaker.describe_training_job(TrainingJobName=name)
        if described["TrainingJobStatus"] not in {"InProgress", "Stopping"}:
            return str(described["TrainingJobStatus"])
        if faults and described["SecondaryStatus"] == "Training":
            faults.begin()
        if faults:
            faults.put_when_due()
        time.sleep(POLL_S)


def figures(
    engine: MeasuredEngine, way: str, steps: int, names: list[str], struck: Mapping[str, int]
) -> GoodputRun:
    """Return the figures of a training's jobs, as in the report."""
    jobs = [job_record(TaskId.TRAIN, snapshot_of(engine, name)) for name in names]
    lines = [line for name in names for line in trainyard_lines(engine, name)]
    continuity = measure_continuity(lines, jobs)
    began = min(each.started_at for each in continuity.attempts if each.started_at)
    ended = max(line.time_ms / 1000 for line in lines if line.text.startswith("trainyard step="))
    record = build_run_record(
        dag_id="goodput",
        run_id=names[0],
        started_at=began,
        ended_at=ended,
        jobs=jobs,
        continuity=asdict(continuity),
    )
    return GoodputRun(
        way=way,
        steps=steps,
        wall_seconds=ended - began,
        weights_sha256=weights_of(engine, names[-1]),
        num_jobs=len(names),
        starts=len(continuity.attempts),
        steps_redone=continuity.steps_redone,
        stepping=record.goodput["share"],
        num_faults=struck,
        seconds={cause: round(s, 1) for cause, s in record.goodput["seconds"].items()},
    )


def snapshot_of(engine: MeasuredEngine, name: str) -> dict[str, Any]:
    """Return a job's snapshot in the form of a run's record."""
    described = engine.sagemaker.describe_training_job(TrainingJobName=name)
    return JobSnapshot.from_describe(described).to_dict()


def trainyard_lines(engine: MeasuredEngine, name: str) -> Iterator[LogLine]:
    """Yield the `trainyard ` lines of all starts of a job's first host."""
    pages = engine.logs.get_paginator("filter_log_events").paginate(
        logGroupName=LOG_GROUP,
        logStreamNamePrefix=f"{name}/algo-1-",
        filterPattern='"trainyard "',
    )
    for page in pages:
        for each in page["events"]:
            if each["message"].startswith("trainyard "):
                yield LogLine(
                    job=name,
                    stream=each["logStreamName"],
                    time_ms=each["timestamp"],
                    text=each["message"],
                )


def append(path: Path, number: int, runs: list[GoodputRun]) -> None:
    """Add a round to the file of JSON lines."""
    with path.open("a") as file:
        for run in runs:
            file.write(json.dumps({"round": number, **asdict(run)}) + "\n")


def print_table(rounds: list[list[GoodputRun]]) -> None:
    """Print the kept share and the losses by cause of each way, over all rounds."""
    print(
        "\n| way | progress kept | stepping | faults | jobs | starts | steps redone | lost seconds a fault |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for way in dict.fromkeys(run.way for runs in rounds for run in runs):
        pairs = [(run, runs[0]) for runs in rounds for run in runs if run.way == way]
        kept = [run.steps_per_s / bare.steps_per_s for run, bare in pairs]
        own = [run for run, _ in pairs]
        faults = Counter[str]()
        lost = Counter[str]()
        for run in own:
            faults.update(run.num_faults)
            lost.update({k: v for k, v in run.seconds.items() if k != "stepping"})
        num_faults = sum(faults.values())
        each = ", ".join(
            f"{cause} {seconds / max(1, num_faults):.2f}" for cause, seconds in lost.most_common()
        )
        print(
            f"| {way} | {percent(kept)} | {percent([run.stepping for run in own])} "
            f"| {num_faults} | {sum(run.num_jobs for run in own)} | {sum(run.starts for run in own)} "
            f"| {sum(run.steps_redone for run in own)} | {each} |"
        )
        if num_faults:
            print(f"  {way}: {dict(faults)}", file=sys.stderr)


def percent(shares: list[float]) -> str:
    """Return the median of the shares, and their range if there are several."""
    median = f"{statistics.median(shares):.1%}"
    return median if len(shares) == 1 else f"{median} ({min(shares):.1%} to {max(shares):.1%})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="minutes of the run without faults (30)"
    )
    parser.add_argument("--steps", type=int, help="steps of each run, instead of --minutes")
    parser.add_argument("--every-s", type=float, default=30.0, help="seconds between faults (30)")
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds (1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the faults (0)")
    parser.add_argument(
        "--plain-interval", type=int, default=100, help="steps between checkpoints of `plain` (100)"
    )
    parser.add_argument("--ways", nargs="+", default=["trainyard", "plain"])
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--results", type=Path, default=REPOSITORY / "goodput.jsonl", help="the file of results"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
