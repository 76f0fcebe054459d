"""Overhead of a job and a run beyond the training itself: the engine against torchrun, the DAG against its jobs.

    python benchmarks/overhead.py [--repeats 5] [--steps 20]
    python benchmarks/overhead.py --report runs/<run id>/report.json

The first form trains the same script on the same shards with the same hyperparameters, two ranks of one thread each,
in turns:

* engine: `CreateTrainingJob` of two instances, run by AWS's toolkit and torchrun, as any client would send it;
* torchrun: `torchrun --standalone --nproc-per-node 2 train_ddp.py`, with the data already in place.

Seconds count from the call (or the start of the process) to the first training step, by the script's own clock, and to
the end: `Completed` with the model in S3, or the process's exit. The second form divides the time of a finished run
into its jobs and the time between them.
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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkout import SCRIPTS
from training_jobs import (
    BUCKET,
    CHANNELS,
    PREFIX,
    MeasuredEngine,
    running_engine,
    shard,
    training_job,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

JOB_LIMIT_S = 300.0
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
    """Run the requested form; return the exit status."""
    options = _parser().parse_args()
    if options.report is not None:
        print_run(json.loads(options.report.read_text()))
        return 0
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        root = Path(folder)
        shard(root / "dataset")
        hyperparameters = {**MODEL, "max_steps": options.steps}
        with running_engine(root / "engine") as engine:
            engine.upload(root / "dataset")
            _compare(options.repeats, engine, root, hyperparameters)
    return 0


def _compare(
    repeats: int, engine: MeasuredEngine, root: Path, hyperparameters: dict[str, Any]
) -> None:
    ways: dict[str, Callable[[str], Timing]] = {
        "engine": lambda name: time_job(engine, name, hyperparameters),
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


def time_job(engine: MeasuredEngine, name: str, hyperparameters: Mapping[str, Any]) -> Timing:
    """Return the seconds of one training job on two instances of the engine.

    Raises:
        RuntimeError: the job did not complete.
    """
    request = training_job(name, hyperparameters)
    began_clock, began = time.time(), time.monotonic()
    engine.sagemaker.create_training_job(**request)
    while time.monotonic() < began + JOB_LIMIT_S:
        answer = engine.sagemaker.describe_training_job(TrainingJobName=name)
        if answer["TrainingJobStatus"] == "Completed":
            end_s = time.monotonic() - began
            output = f"{name}/output/output.tar.gz"
            body = engine.s3.get_object(Bucket=BUCKET, Key=f"{PREFIX}/output/{output}")[
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
    """Print the division of a finished run's time.

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


def _first_step_time(metrics: str) -> float:
    events = (json.loads(line) for line in metrics.splitlines())
    return float(next(each["time"] for each in events if each["event"] == "step"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=re.split(r"\n\n", __doc__ or "")[0])
    parser.add_argument(
        "--repeats", type=int, default=5, help="counted rounds, after one that is not (5)"
    )
    parser.add_argument("--steps", type=int, default=20, help="training steps of each job (20)")
    parser.add_argument(
        "--report", type=Path, help="a run's report.json: print the division of its time instead"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
