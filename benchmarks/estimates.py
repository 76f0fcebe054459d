"""Comparison of the estimated with the actual cost of ten different runs on the engine.

    python benchmarks/estimates.py [--calibrating 2] [--steps 1000] [--only NAME ...]

A separate engine and Airflow run `train_end_to_end` by `dag.test()`, one run after another, each with its own small
conf. A training has one rank with one thread: the other core is for the engine and Airflow, which run on instances and
machines of their own in production. The first runs calibrate and are not counted: `--calibrating` on demand, and one on
spot capacity. Later estimates use the measurements that each run stores. The output has the estimate that preflight
returned and the cost in report.json, by the engine's billable seconds. It also has the machine's load, and the seconds
of a fixed piece of work on two cores before and after the run. Other work on the machine changes both, and the duration
of a step with them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkout import REPOSITORY

sys.path.insert(0, str(REPOSITORY))

from training_jobs import BUCKET, REGION, ROLE, MeasuredEngine, running_engine

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow

if TYPE_CHECKING:
    from collections.abc import Mapping

SMALL: Mapping[str, Any] = {
    "max_source_bytes": 1_000_000,
    "watch_rules": False,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_size": 64,
    "sequence_length": 128,
    "instance_count": 1,
    "hyperparameters": {"num_threads": 1},
}
SPOT: Mapping[str, Any] = {"use_spot_instances": True}
CONFS: Mapping[str, Mapping[str, Any]] = {
    "half of the steps": {"steps": 0.5},
    "twice the steps": {"steps": 2},
    "other learning rate and seed": {"learning_rate": 1e-3, "seed": 3},
    "validation every 20 steps": {"eval_interval": 20},
    "no validation": {"eval_interval": 0},
    "checkpoint every 20 steps": {"checkpoint_interval": 20},
    "spot": SPOT,
    "four layers": {"num_layers": 4},
    "hidden size 128": {"hidden_size": 128, "steps": 0.8},
    "global batch 32": {"global_batch_size": 32, "steps": 0.8},
}
WITHIN = 0.10
PROBE_ROUNDS = 10_000_000


def main() -> int:
    """Print one row for each run; return 0 if all estimates were within 10 %."""
    options = _parser().parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="estimates-") as folder,
        running_engine(Path(folder) / "engine") as engine,
    ):
        dag = _dag(engine)
        calibrating = [*[{}] * options.calibrating, SPOT]
        for number, conf in enumerate(calibrating, start=1):
            _print_row(f"(calibrating {number})", _run(engine, dag, _conf(conf, options.steps)))
        missed = 0
        for name in options.only or CONFS:
            report = _run(engine, dag, _conf(CONFS[name], options.steps))
            missed += not _print_row(name, report)
    print(f"{missed} not within {WITHIN:.0%}")
    return 1 if missed else 0


def _conf(conf: Mapping[str, Any], num_steps: int) -> dict[str, Any]:
    """Return a run's conf; `steps` in `conf` is a factor for the number of steps."""
    rest = {name: value for name, value in conf.items() if name != "steps"}
    return {**SMALL, "max_steps": round(num_steps * conf.get("steps", 1)), **rest}


def _dag(engine: MeasuredEngine) -> Any:
    """Return a function that parses the DAG again at each call; the DAG's connection leads to the engine."""
    trainyard = {
        "bucket": BUCKET,
        "execution_role_arn": ROLE,
        "shortest_poll_s": 0.5,
        "rules_poll_interval_s": 15,
    }
    extra = {"endpoint_url": engine.endpoint, "region_name": REGION, "trainyard": trainyard}
    os.environ["AIRFLOW_CONN_AWS_DEFAULT"] = json.dumps(
        {"conn_type": "aws", "login": "test", "password": "test", "extra": extra}
    )
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.utils.db import initdb

    dags = REPOSITORY / "dags"

    def parsed() -> Any:
        file = dags / "train_end_to_end.py"
        return DagBag(file, bundle_path=dags, bundle_name="dags-folder")

    initdb()
    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(parsed(), "dags-folder", None)
    return lambda: parsed().dags["train_end_to_end"]


def _run(engine: MeasuredEngine, dag: Any, conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return report.json of a run; `probe_s` in it has the mean seconds of `_probe_s` before and after the run."""
    before = _probe_s()
    run = dag().test(run_conf=dict(conf))
    pages = engine.s3.get_paginator("list_objects_v2").paginate(
        Bucket=BUCKET, Prefix="trainyard/runs/"
    )
    listed = (each for page in pages for each in page["Contents"])
    newest = max(
        (each for each in listed if each["Key"].endswith("/report/report.json")),
        key=lambda each: each["LastModified"],
    )
    report: dict[str, Any] = json.loads(
        engine.s3.get_object(Bucket=BUCKET, Key=newest["Key"])["Body"].read()
    )
    assert report["run_id"] == run.run_id, "the run has no report"
    return {**report, "probe_s": (before + _probe_s()) / 2}


def _probe_s() -> float:
    """Return the seconds of a fixed piece of work on each of two processes."""
    command = [sys.executable, "-c", f"sum(i * i for i in range({PROBE_ROUNDS}))"]
    began = time.perf_counter()
    running = [subprocess.Popen(command) for _ in range(2)]
    for each in running:
        each.wait()
    return time.perf_counter() - began


def _print_row(name: str, report: Mapping[str, Any]) -> bool:
    """Print a run's estimate and cost; return whether the estimate's error is at most `WITHIN`."""
    cost, usd = report["cost"], report["cost"]["estimate_usd"]
    error = cost["estimate_error"]
    planned = {each["task_id"]: each for each in report["plan"]["estimate"]["jobs"]}
    machine = f"load {os.getloadavg()[0]:4.1f} probe {report['probe_s']:4.1f} s"
    jobs = " ".join(
        f"{job['task_id']} {planned[job['task_id']]['usd']['expected']:.6f} {job['cost']['cost_usd']:.6f}"
        for job in report["jobs"]
    )
    print(
        f"{name:<30} {report['status']:<10} estimate {usd['expected']:.6f} ({usd['low']:.6f} to {usd['high']:.6f}) "
        f"actual {cost['total_usd']:.6f} {error:+7.1%}  {machine}  [{jobs}]",
        file=sys.stdout,
        flush=True,
    )
    return abs(error) <= WITHIN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--calibrating", type=int, default=2, help="on-demand runs before the counted ones"
    )
    parser.add_argument("--steps", type=int, default=1000, help="steps of a training")
    parser.add_argument("--only", nargs="*", choices=list(CONFS), help="names of runs (all)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
