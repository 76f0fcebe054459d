"""`kill -9` in the middle of a search: it goes on, no trial runs twice, none is lost, and its winner is trained.

`make test-resilience` runs this.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.stack.small_run import SMALL_RUN, SUCCEEDED
from trainyard.sagemaker_api.names import job_name
from trainyard.stack import process_finder, processes

if TYPE_CHECKING:
    from tests.stack.live_stack import LiveStack

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TRAINYARD_RESILIENCE_SEEDS") != "all",
        reason="make test-resilience kills processes",
    ),
]

DAG_ID = "train_end_to_end"
NUM_TRIALS = 8
SEARCH = {
    "tune": True,
    "tuning_max_jobs": NUM_TRIALS,
    "tuning_max_parallel_jobs": 2,
    "tuning_instance_count": 1,
    "tuning_max_steps": 400,  # long enough for a kill to find the trial on its way
    "tuning_ranges": {
        "learning_rate": {
            "min_value": 0.001,
            "max_value": 0.02,
            "scaling_type": "Logarithmic",
        }
    },
    "max_steps": 400,
    "eval_interval": 100,
    "hyperparameters": {"num_threads": 1},  # trials that run beside each other share the cores
}


def test_search_goes_on_after_each_kill(stack: LiveStack) -> None:
    stack.wait(lambda: stack.api.has_dag(DAG_ID), "parsing of the DAG", limit_s=60)
    stack.api.set_paused(DAG_ID, paused=False)
    run_id = stack.api.trigger(DAG_ID, conf={**SMALL_RUN, **SEARCH})
    search = KilledSearch(stack, run_id)

    stack.wait(lambda: search.task_state() == "running", "the start of the search's task")
    kill(stack, "worker")
    search.wait_for_ended_trials(1)
    kill(stack, "rank")
    kill(stack, "engine")
    search.wait_for_ended_trials(3)
    kill(stack, "triggerer")
    assert search.status() == "InProgress", "over before the last kills"
    kill(stack, "engine")
    states = stack.end_of(DAG_ID, run_id)

    assert states == {**SUCCEEDED, "tune": "success"}
    trials = search.trials()
    assert search.status() == "Completed"
    assert len(trials) == NUM_TRIALS
    ended = [trial["TrainingJobStatus"] for trial in trials]
    assert (ended.count("Completed"), ended.count("Failed")) == (NUM_TRIALS - 1, 1), ended
    for trial in trials:
        assert len(search.log_streams(trial["TrainingJobName"])) == 1, trial
    best = min(
        (trial for trial in trials if trial["TrainingJobStatus"] == "Completed"),
        key=lambda trial: trial["FinalHyperParameterTuningJobObjectiveMetric"]["Value"],
    )
    trained = search.final_training()
    assert trained["TrainingJobStatus"] == "Completed"
    won = best["TunedHyperParameters"]["learning_rate"]
    assert float(trained["HyperParameters"]["learning_rate"].strip('"')) == pytest.approx(
        float(won.strip('"'))
    )


class KilledSearch:
    """The search of one run, as the service tells it."""

    def __init__(self, stack: LiveStack, run_id: str) -> None:
        self.stack, self.run_id = stack, run_id
        self.sagemaker, self.logs = (stack.client(name) for name in ("sagemaker", "logs"))
        self.name = job_name(
            dag_id=DAG_ID, run_id=run_id, task_id="tune", attempt=1, longest=32, deployment="local"
        )

    def task_state(self) -> str:
        """Return the state of the search's task."""
        tasks = self.stack.api.tasks(DAG_ID, self.run_id)
        return next(str(task["state"]) for task in tasks if task["task_id"] == "tune")

    def status(self) -> str:
        """Return the search's status; it is the only search of the run."""
        key = "HyperParameterTuningJobSummaries"
        found = self.sagemaker.list_hyper_parameter_tuning_jobs(NameContains=self.name)[key]
        again = self.sagemaker.list_hyper_parameter_tuning_jobs()[key]
        mine = [job for job in again if job["CreationTime"] >= found[0]["CreationTime"]]
        assert [job["HyperParameterTuningJobName"] for job in mine] == [self.name]
        return str(mine[0]["HyperParameterTuningJobStatus"])

    def trials(self) -> list[dict[str, Any]]:
        """Return the search's trials."""
        answer = self.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=self.name, MaxResults=100
        )
        return list(answer["TrainingJobSummaries"])

    def wait_for_ended_trials(self, count: int) -> None:
        """Wait until so many trials have ended and another one trains."""

        def is_so() -> bool:
            with suppress(BotoCoreError, ClientError):  # no search yet, or the engine starts again
                states = [trial["TrainingJobStatus"] for trial in self.trials()]
                return len(states) - states.count("InProgress") >= count and "InProgress" in states
            return False

        self.stack.wait(is_so, f"the end of trial {count}", limit_s=240)

    def log_streams(self, job: str) -> list[str]:
        """Return the log streams of a job: each start of its instance writes its own."""
        answer = self.logs.describe_log_streams(
            logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{job}/"
        )
        return [stream["logStreamName"] for stream in answer["logStreams"]]

    def final_training(self) -> dict[str, Any]:
        """Return the job of the run's training task."""
        name = job_name(
            dag_id=DAG_ID, run_id=self.run_id, task_id="train", attempt=1, deployment="local"
        )
        return dict(self.sagemaker.describe_training_job(TrainingJobName=name))


def kill(stack: LiveStack, victim: str) -> None:
    """Kill the victim as soon as there is one."""
    pid = stack.wait(lambda: process_finder.find(stack.home, victim), f"a {victim}", limit_s=90)
    processes.signal_all([pid], signal.SIGKILL)
