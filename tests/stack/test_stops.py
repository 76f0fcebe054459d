"""What ends a task ends its paid job, deferred or not; what only ends a process does not.

All cases run at once on one live stack, each as a DAG run of its own: a module-wide fixture acts and measures, the
tests look at what it saw. `docs/stopping.md` holds the same table in words. `make test` does what users do most;
`make test-resilience` the rest too: every way to end a task, and processes that are killed.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import requests
from botocore.exceptions import ClientError

from trainyard.errors import TrainingRunError
from trainyard.sagemaker_api.names import job_name
from trainyard.stack import process_finder, processes
from trainyard.stack.stack import read_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stack.live_stack import LiveStack


STOPS_IN_TIME = ("Stopping", "Stopped")
"""A job that nobody stops trains for an hour: longer than any wait here."""
JANITOR = "clean_up_orphans"
STOPPING_ACTIONS = ("failed", "success", "clear", "run deleted", "task deleted", "timeout")
STOPS = [(where, action) for where in ("deferred", "worker") for action in STOPPING_ACTIONS]
STOPS += [("deferred", "dag deleted")]
SURVIVES = [
    ("worker", "killed, will be retried"),
    ("worker", "sigterm"),
    ("deferred", "triggerer killed"),
]
ORPHANED = ("worker", "killed, was its last try")
DOES_ALL = os.environ.get("TRAINYARD_RESILIENCE_SEEDS") == "all"
if not DOES_ALL:
    STOPS = [
        ("deferred", "failed"),
        ("deferred", "run deleted"),
        ("worker", "clear"),
        ("worker", "timeout"),
    ]
ONLY_IN_ALL = pytest.mark.skipif(not DOES_ALL, reason="make test-resilience kills processes")
ONE_CALL = threading.Lock()
"""SQLite lets one write at a time: calls that come together wait for each other inside the API server."""
DAG_KINDS = {"timeout": "timed", "dag deleted": "doomed", "killed, will be retried": "retried"}


@dataclass(kw_only=True)
class StopCase:
    """One DAG run, and what was done to it."""

    stack: LiveStack
    where: str
    action: str
    run_id: str = ""
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def dag_id(self) -> str:
        """The DAG of this case."""
        return f"stops_{self.where}_{DAG_KINDS.get(self.action, 'plain')}"

    @property
    def path(self) -> str:
        """The run's place in the REST API."""
        return f"/dags/{self.dag_id}/dagRuns/{quote(self.run_id, safe='')}"

    def job(self, attempt: int = 1) -> dict[str, Any]:
        """Return the description of the run's job, empty while there is none."""
        name = job_name(
            dag_id=self.dag_id,
            run_id=self.run_id,
            task_id="train",
            attempt=attempt,
            deployment="local",
        )
        with suppress(ClientError):
            return dict(self.sagemaker.describe_training_job(TrainingJobName=name))
        return {}

    def tags(self) -> dict[str, str]:
        """Return the tags of the run's job."""
        tags = self.sagemaker.list_tags(ResourceArn=self.job()["TrainingJobArn"])["Tags"]
        return {each["Key"]: each["Value"] for each in tags}

    @cached_property
    def sagemaker(self) -> Any:
        """A client of the stack's engine."""
        return self.stack.client("sagemaker")

    def task(self) -> tuple[str, int, str]:
        """Return the task's state, its try and its id; the state is empty where there is no task."""
        rows = self.stack.database(
            "SELECT state, try_number, id FROM task_instance "  # noqa: S608
            f"WHERE dag_id = '{self.dag_id}' AND run_id = '{self.run_id}'"
        )
        state, tries, task_id = rows[0] if rows else ("", 0, "")
        return str(state), int(tries), str(task_id).replace("-", "")

    def follower(self) -> str:
        """Return which trigger took the job over, empty if none did."""
        return self.tags().get("trainyard:follower", "") if self.job() else ""

    def is_followed(self) -> bool:
        """Return whether a trigger has seen that the job trains, as its log says."""
        folder = self.stack.home.airflow / f"logs/dag_id={self.dag_id}/run_id={self.run_id}"
        return any(": Training" in log.read_text() for log in folder.rglob("*.trigger.*.log"))

    def start(self) -> None:
        """Start the run and wait until its job trains and its task waits for it."""
        with ONE_CALL:
            self.run_id = self.stack.api.trigger(self.dag_id, conf={})
        self.stack.wait(self._is_waiting, f"{self.where}, {self.action}: a job")

    def act(self) -> None:
        """Do to the run what this case is about."""
        call = self.stack.api._call  # the launcher needs none of these
        task = f"{self.path}/taskInstances/train"
        match self.action:
            case "failed" | "success":
                call("PATCH", task, body={"new_state": self.action})
            case "clear":
                body = {"dry_run": False, "dag_run_id": self.run_id, "task_ids": ["train"]}
                call(
                    "POST",
                    f"/dags/{self.dag_id}/clearTaskInstances",
                    body={**body, "only_failed": False},
                )
            case "run deleted":  # Airflow refuses to delete one that runs
                call("PATCH", self.path, body={"state": "failed"})
                self._wait_for_a_look_of_the_scheduler()
                call("DELETE", self.path)
            case "task deleted":
                call("DELETE", task)
            case "dag deleted":
                call("DELETE", f"/dags/{self.dag_id}")
            case "sigterm":
                processes.signal_all([self.worker()], signal.SIGTERM)
            case "killed, will be retried" | "killed, was its last try":
                processes.signal_all([self.worker()], signal.SIGKILL)
            case "triggerer killed":
                triggerer = process_finder.find(self.stack.home, "triggerer")
                assert triggerer is not None
                processes.signal_all([triggerer], signal.SIGKILL)

    def worker(self) -> int:
        """Return the pid of the executor's worker that runs the task."""
        record, (_, _, task_id) = read_record(self.stack.home), self.task()
        assert record is not None
        titles = {pid: processes.command_line(pid) for pid in processes.descendants(record.pid)}
        (found,) = (
            pid
            for pid, title in titles.items()
            if "LocalExecutor:" in title and task_id in title.replace("-", "")
        )
        return found

    def log(self) -> str:
        """Return what the task's first try has logged."""
        lines = self.stack.api.log(self.dag_id, self.run_id, self.task()[2], 1)
        return "\n".join(str(each.get("event")) for each in lines)

    def stop(self) -> None:
        """Run the case of something that must stop the job, and wait for that."""
        self.start()
        with ONE_CALL:
            self.act()
        self.wait_for_stop()
        if self.action == "clear":
            what = f"{self.where}, clear: the next attempt"
            self.notes["next"] = self.stack.wait(lambda: self.job(2), what)
        if self.where == "worker":  # its next attempt would hold one of the executor's workers
            self.end()

    def wait_for_stop(self) -> None:
        """Wait until the job is stopped or has ended, and note which."""
        what = f"{self.where}, {self.action}: the job's stop"
        self.stack.wait(lambda: self.job()["TrainingJobStatus"] != "InProgress", what)
        self.notes["end"] = self.job()["TrainingJobStatus"]

    def end(self) -> None:
        """End what is left of the run."""
        with suppress(TrainingRunError, requests.RequestException), ONE_CALL:
            self.stack.api.fail_run(self.dag_id, self.run_id)

    def _wait_for_a_look_of_the_scheduler(self) -> None:
        """Wait until the scheduler has begun another round.

        It dies of a run that is deleted between two steps of a round (Airflow 3.3.2, `_schedule_all_dag_runs`: its
        handler of that very error reads the deleted run again).
        """
        beat = "SELECT max(latest_heartbeat) FROM job WHERE job_type = 'SchedulerJob'"
        before = self.stack.database(beat)
        self.stack.wait(lambda: self.stack.database(beat) != before, "a heartbeat")

    def _is_waiting(self) -> bool:
        job = self.job()
        if self.action == "timeout":  # its clock runs already
            return bool(job)
        if not job:
            assert self.task()[0] != "failed", "the task failed before it had a job"
        if job.get("SecondaryStatus") != "Training":
            return False
        if self.where == "worker":
            return self.task()[0] == "running"
        return self.task()[0] == "deferred" and self.is_followed()


@dataclass(kw_only=True)
class SeenStop:
    """What came of all cases."""

    cases: dict[tuple[str, str], StopCase] = field(default_factory=dict)
    errors: dict[tuple[str, str], BaseException] = field(default_factory=dict)
    swept: list[dict[str, Any]] = field(default_factory=list)

    def case(self, where: str, action: str) -> StopCase:
        """Return a case; raise what went wrong in it."""
        if (where, action) in self.errors:
            raise self.errors[where, action]
        return self.cases[where, action]


@pytest.fixture(scope="module")
def seen(stack: LiveStack) -> Iterator[SeenStop]:
    """Every case, run to its end: four at a time, as many as the stack's executor has workers."""
    seen = SeenStop()
    every = [*STOPS, *SURVIVES, ORPHANED] if DOES_ALL else STOPS
    seen.cases = {each: StopCase(stack=stack, where=each[0], action=each[1]) for each in every}
    for dag_id in {case.dag_id for case in seen.cases.values()} | {JANITOR}:
        stack.wait(lambda dag_id=dag_id: stack.api.has_dag(dag_id), f"parsing of {dag_id}")
        stack.api.set_paused(dag_id, paused=False)

    def noting(key: tuple[str, str], step: Any) -> None:
        try:
            step(seen.cases[key])
        except Exception as error:  # noqa: BLE001  # told by the test of this case
            seen.errors[key] = error

    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda key: noting(key, StopCase.stop), STOPS))
        if DOES_ALL:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda key: noting(key, outlive), [*SURVIVES, ORPHANED]))
            noting(ORPHANED, lambda case: seen.swept.extend(sweep(case)))
            for key in SURVIVES:
                noting(key, end_after_all)
        yield seen
    finally:
        for case in seen.cases.values():
            case.end()


def outlive(case: StopCase) -> None:
    """Kill a process that waits for the job; wait until another one waits for it, or its task has failed."""
    case.start()
    before = case.follower()
    with ONE_CALL:
        case.act()
    what = f"{case.where}, {case.action}: what comes after"
    match case.action:
        case "killed, will be retried":
            case.stack.wait(lambda: case.task()[:2] == ("running", 2), what)
        case "killed, was its last try":
            case.stack.wait(lambda: case.task()[0] == "failed", what)
        case "sigterm":
            case.stack.wait(lambda: "its job goes on" in case.log(), what)
        case "triggerer killed":
            case.stack.wait(lambda: case.follower() not in ("", before), what)
    case.notes["status"] = case.job()["TrainingJobStatus"]
    case.notes["second job"] = case.job(2)


def end_after_all(case: StopCase) -> None:
    """Mark the run of a job that outlived a process failed, and wait for the job's stop."""
    case.stack.api.fail_run(case.dag_id, case.run_id)
    case.wait_for_stop()


def sweep(case: StopCase) -> list[dict[str, Any]]:
    """Run the janitor's DAG once the case's run has ended, and return what it found."""
    stack = case.stack
    stack.end_of(case.dag_id, case.run_id)
    run_id = stack.api.trigger(JANITOR, conf={"grace_minutes": 0})
    assert stack.end_of(JANITOR, run_id) == {"stop_orphans": "success"}
    told = stack.api.xcom(JANITOR, run_id, "stop_orphans", "return_value")
    return list(told["things"])


@pytest.mark.parametrize(("where", "action"), STOPS, ids=[", ".join(each) for each in STOPS])
def test_what_ends_a_task_stops_its_job(seen: SeenStop, where: str, action: str) -> None:
    case = seen.case(where, action)
    assert case.notes["end"] in STOPS_IN_TIME
    if action == "clear":
        assert case.notes["next"]["TrainingJobStatus"] == "InProgress"


@ONLY_IN_ALL
@pytest.mark.parametrize(("where", "action"), SURVIVES, ids=[", ".join(each) for each in SURVIVES])
def test_what_ends_only_a_process_costs_neither_the_job_nor_a_second_one(
    seen: SeenStop, where: str, action: str
) -> None:
    case = seen.case(where, action)
    assert (case.notes["status"], case.notes["second job"]) == ("InProgress", {})
    assert (
        case.notes["end"] in STOPS_IN_TIME
    )  # whoever waits for it now stops it, once somebody wants that


@ONLY_IN_ALL
def test_orphan_of_a_last_try_is_stopped_by_the_janitor_and_nothing_else(seen: SeenStop) -> None:
    case = seen.case(*ORPHANED)
    assert case.notes["status"] == "InProgress"
    stopped = [thing["name"] for thing in seen.swept if thing["is_stopped"]]
    assert stopped == [case.job()["TrainingJobName"]]
    assert case.job()["TrainingJobStatus"] != "InProgress"
