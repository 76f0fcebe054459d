"""`kill -9` of any process at a random moment: the run still ends well, with one job per logical job.

`make test` kills each kind of process once, all in one run, and before it all idle workers; `make test-resilience`
runs every seed.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.stack.small_run import SMALL_RUN, SUCCEEDED
from trainyard.stack import process_finder, processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stack.live_stack import LiveStack

DAG_ID = "train_end_to_end"
VICTIMS = ("worker", "triggerer", "scheduler", "engine", "rank")
# Long enough for the last kill to find the run still on its way: about 40 steps a second on two cores.
STEPS_PER_VICTIM = 400
LATEST_S = 6.0
SETTLED_AFTER_S = 3.0  # the supervisor polls several times per second
NUM_SEEDS = 20
LIVE = ("InProgress", "Stopping")

CASES = [
    pytest.param(
        seed, (VICTIMS[seed % len(VICTIMS)],), id=f"seed{seed}-{VICTIMS[seed % len(VICTIMS)]}"
    )
    for seed in range(NUM_SEEDS)
]
if os.environ.get("TRAINYARD_RESILIENCE_SEEDS") != "all":
    CASES = [pytest.param(NUM_SEEDS, VICTIMS, id="each-once", marks=pytest.mark.slow)]


@dataclass(kw_only=True)
class JobWatch:
    """Looks at the engine's training jobs all the time, also while the engine is being started again."""

    endpoint_url: str
    since: float
    most_live: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def jobs(self, operation: str, key: str) -> list[dict[str, Any]]:
        """Return the jobs of a kind that were created since the watch began."""
        client = boto3.client(
            "sagemaker",
            endpoint_url=self.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",  # noqa: S106
        )
        found = client.get_paginator(operation).paginate().build_full_result()[key]
        return [job for job in found if job["CreationTime"].timestamp() >= self.since]

    def training(self) -> list[dict[str, Any]]:
        """Return the training jobs."""
        return self.jobs("list_training_jobs", "TrainingJobSummaries")

    def look_until_ended(self) -> None:
        """Count live jobs twice a second."""
        while not self._ended.wait(0.5):
            with suppress(BotoCoreError, ClientError):
                live = sum(job["TrainingJobStatus"] in LIVE for job in self.training())
                self.most_live = max(self.most_live, live)

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()


@pytest.fixture
def watch(stack: LiveStack) -> Iterator[JobWatch]:
    """A watch over the jobs of one test."""
    watch = JobWatch(endpoint_url=stack.engine, since=time.time())
    thread = threading.Thread(target=watch.look_until_ended)
    thread.start()
    yield watch
    watch.end()
    thread.join()


@pytest.mark.parametrize(("seed", "killed"), CASES)
def test_the_run_ends_well_with_one_job_per_logical_job(
    stack: LiveStack, watch: JobWatch, seed: int, killed: tuple[str, ...]
) -> None:
    draw = random.Random(seed)  # noqa: S311 - a seeded choice of moments
    stack.api.set_paused(DAG_ID, paused=False)
    kill_idle_workers(stack)
    conf = {**SMALL_RUN, "max_steps": STEPS_PER_VICTIM * len(killed), "checkpoint_interval": 50}
    run_id = stack.api.trigger(DAG_ID, conf={**conf, "eval_interval": 300})

    # Only before and after training does a worker run a task: it comes first.
    for victim in sorted(draw.sample(killed, len(killed)), key=lambda name: name != "worker"):
        kill_at_a_random_moment(stack, run_id, victim, draw)
    states = stack.end_of(DAG_ID, run_id)

    assert states == SUCCEEDED, states
    assert stack.api.run(DAG_ID, run_id)["note"].startswith("Succeeded; test loss ")
    trained = [job["TrainingJobStatus"] for job in watch.training()]
    assert trained.count("Completed") == 1, trained
    assert watch.most_live <= 1
    evaluated = watch.jobs("list_processing_jobs", "ProcessingJobSummaries")
    assert [job["ProcessingJobStatus"] for job in evaluated].count("Completed") == 1
    stack.wait(lambda: not process_finder.training_processes(stack.home), "the end of every rank")


def kill_idle_workers(stack: LiveStack) -> None:
    """Kill all workers that wait for work; another scheduler follows, which starts workers of its own."""
    scheduler = stack.wait(lambda: process_finder.find(stack.home, "scheduler"), "a scheduler")
    idle = stack.wait(lambda: idle_for_a_second(stack), "idle workers")
    processes.signal_all(idle, signal.SIGKILL)
    stack.wait(
        lambda: process_finder.find(stack.home, "scheduler") not in (None, scheduler),
        "another scheduler",
    )


def idle_for_a_second(stack: LiveStack) -> list[int]:
    """Return the workers that wait for work if the supervisor has seen that, too: it looks more often."""
    idle = settled_idle_workers(stack)
    time.sleep(1)
    return idle if idle == settled_idle_workers(stack) else []


def settled_idle_workers(stack: LiveStack) -> list[int]:
    """Return the pids of the executor's idle workers; none if one of them is younger than 3 s."""
    titles = process_finder._titles(stack.home)
    idle = [pid for pid, title in titles if f"{process_finder.WORKER}<idle>" in title]
    return idle if all(_age_s(pid) > SETTLED_AFTER_S for pid in idle) else []


def _age_s(pid: int) -> float:
    started = processes.process_table()[pid].start_ticks / os.sysconf("SC_CLK_TCK")
    return float(Path("/proc/uptime").read_text().split()[0]) - started


def kill_at_a_random_moment(
    stack: LiveStack, run_id: str, victim: str, draw: random.Random
) -> None:
    """Wait a random time, then kill the victim as soon as there is one, in the middle of the run."""
    until = time.monotonic() + draw.uniform(0, LATEST_S)
    stack.wait(lambda: time.monotonic() >= until, "the random moment")
    pid = stack.wait(lambda: process_finder.find(stack.home, victim), f"a {victim}")
    processes.signal_all([pid], signal.SIGKILL)
    assert stack.api.run(DAG_ID, run_id)["state"] == "running", (
        f"over before the {victim} was killed"
    )
