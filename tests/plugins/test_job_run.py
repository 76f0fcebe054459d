"""`JobRun` over whole lives of a task, with a service that is a dictionary: no Airflow, no engine, no job."""

# ruff: noqa: ARG002 - the doubles have the signatures of what they stand for
from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from trainyard.errors import (
    CapacityError,
    JobStoppedError,
    QuotaExceededError,
    QuotaTooSmallError,
    RejectedRequestError,
    ScriptError,
    TimeLimitError,
    TrainingRunError,
)
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard.specs.capacity_rung import CapacityRung
from trainyard_airflow.hooks.jobs import NameTakenError
from trainyard_airflow.jobs.job_place import JobPlace
from trainyard_airflow.jobs.job_run import JobRun
from trainyard_airflow.jobs.job_type import JobType
from trainyard_airflow.jobs.ladder import Placement
from trainyard_airflow.jobs.steps import AwaitQuota, AwaitStop, Done, Follow, Step
from trainyard_airflow.jobs.task_jobs import TaskJobs, TaskKey
from trainyard_airflow.jobs.task_memory import TaskMemory

if TYPE_CHECKING:
    from collections.abc import Callable

FULL = QuotaExceededError("quota", operation="Create", code="ResourceLimitExceeded")
TOO_SMALL = QuotaTooSmallError("quota", operation="Create", code="ResourceLimitExceeded")
NO_CAPACITY = "CapacityError: Unable to provision requested ML compute capacity."


@dataclass
class ScriptedService:
    """The jobs that were created, by name; `refusals` answer the next Create calls, None accepts one."""

    jobs: dict[str, JobSnapshot] = field(default_factory=dict)
    refusals: list[Exception | None] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    killed: set[str] = field(default_factory=set)

    def describe(self, name: str) -> JobSnapshot | None:
        return self.jobs.get(name)

    def create(self, request: dict[str, Any]) -> str:
        name = request["name"]
        if refusal := self.refusals.pop(0) if self.refusals else None:
            raise refusal
        if name in self.jobs:
            raise NameTakenError(name)
        running = [each.name for each in self.jobs.values() if not each.is_terminal]
        assert not running, f"{name} is created while {running} runs"
        self.calls.append(f"create {name}")
        self.jobs[name] = JobSnapshot(
            kind="training", name=name, arn=name, status="InProgress", instance_type="ml.m5.large"
        )
        return name

    def stop(self, name: str, *, is_kill: bool = False) -> bool:
        job = self.jobs.get(name)
        if job is None or job.is_terminal:
            return False
        self.calls.append(f"stop {name}")
        if is_kill:
            self.killed.add(name)
        self.jobs[name] = replace(job, status="Stopped")
        return True

    def was_killed(self, arn: str) -> bool:
        return arn in self.killed

    def tags_known(self, arn: str) -> dict[str, str]:
        return {}

    def stop_cause(self, arn: str) -> None:
        return None

    def end(self, name: str, status: str, reason: str | None = None) -> JobSnapshot:
        self.jobs[name] = replace(self.jobs[name], status=status, failure_reason=reason)
        return self.jobs[name]

    @property
    def created(self) -> list[str]:
        return [call.removeprefix("create ") for call in self.calls if call.startswith("create")]


@dataclass(frozen=True, kw_only=True)
class FakeJobs(TaskJobs):
    """The task's jobs in the service above."""

    service: Any = None


class PlainJobs(JobType):
    """Jobs of as many rungs as asked for, which tell their log."""

    rungs = 1

    def render(self, name: str, *, place: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"name": name}, {}

    def place(self, earlier: Any, *, full_rungs: Any = ()) -> JobPlace:
        lost = [each for each in earlier if each.failure_reason == NO_CAPACITY]
        index = min(self.rungs - 1, max([len(lost), *(each + 1 for each in full_rungs)]))
        rung = CapacityRung(
            instance_type="ml.m5.large", max_wait_s=60 if index + 1 < self.rungs else None
        )
        placement = Placement(rung=rung, index=index, num_rungs=self.rungs, reason="a test")
        return JobPlace(placement=placement)

    def telling_log(self, name: str) -> list[str]:
        return ["ValueError: no column age"]


@dataclass
class RunHost:
    """Airflow's side of the task: it records every call."""

    announced: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    failed: list[Any] = field(default_factory=list)
    is_over: bool = False
    refusal: Exception | None = None

    def name_job(self, job_name: str) -> None:
        if self.refusal:
            raise self.refusal
        self.announced.append(job_name)

    def link_job(self, job_name: str, *, output: str | None) -> None:
        assert job_name == self.announced[-1]

    def note_ended(self, job: Any) -> None:
        self.ended.append(job["name"])

    def note_failed(self, job: Any) -> None:
        self.failed.append(job)

    def has_been_ended(self) -> bool:
        return self.is_over


@dataclass
class ListLedger:
    """What was noted of money, in order."""

    notes: list[str] = field(default_factory=list)

    def intend(self, name: str) -> None:
        self.notes.append(f"intend {name}")

    def withdraw(self, name: str) -> None:
        self.notes.append(f"withdraw {name}")

    def settle(self, snapshot: JobSnapshot, billed: Callable[[JobSnapshot], JobSnapshot]) -> None:
        self.notes.append(f"settle {billed(snapshot).name}")


class MemoryStore(dict[str, Any]):
    """Airflow's task state store."""

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        self[key] = json.loads(json.dumps(value))


@dataclass
class RunTask:
    """One task: its service, and what it keeps across its starts."""

    service: ScriptedService = field(default_factory=ScriptedService)
    store: MemoryStore = field(default_factory=MemoryStore)
    host: RunHost = field(default_factory=RunHost)
    ledger: ListLedger = field(default_factory=ListLedger)
    rungs: int = 1

    def start(self) -> JobRun:
        clients = SimpleNamespace(deployment=None, root="s3://bucket/trainyard")
        jobs = FakeJobs(
            task=TaskKey(dag_id="dag", run_id="run", task_id="train"),
            kind=JobKind.TRAINING,
            clients=clients,  # type: ignore[arg-type]
            project=Path("/project"),
            service=self.service,
        )
        plain = PlainJobs(jobs, {})
        plain.rungs = self.rungs
        memory = TaskMemory(self.store)
        return JobRun(job_type=plain, memory=memory, ledger=self.ledger, host=self.host)  # type: ignore[arg-type]

    def name(self, attempt: int) -> str:
        return self.start().jobs.name_of(attempt)

    def follow(self) -> tuple[JobRun, Follow]:
        run = self.start()
        step = run.next()
        assert isinstance(step, Follow)
        return run, step


@pytest.fixture
def task() -> RunTask:
    return RunTask()


def ended(run: JobRun, step: Follow, snapshot: JobSnapshot) -> Step:
    return run.ended(snapshot, step.facts, was_attached=step.was_attached)


def test_first_start_notes_its_intent_creates_one_job_and_returns_its_result(task: RunTask) -> None:
    run, step = task.follow()
    assert task.ledger.notes == [f"intend {task.name(1)}"]
    assert (run.waits_for, step.was_attached) == (task.name(1), False)

    done = ended(run, step, task.service.end(task.name(1), "Completed"))

    assert isinstance(done, Done)
    assert (done.result["job_name"], done.result["attempt"]) == (task.name(1), 1)
    assert done.result["earlier_attempts"] == []
    assert task.ledger.notes[1:] == [f"settle {task.name(1)}"]


def test_start_beside_a_running_job_attaches_to_it(task: RunTask) -> None:
    task.follow()
    _, step = task.follow()
    assert (step.job_name, step.was_attached) == (task.name(1), True)
    assert len(task.service.created) == 1


def test_start_after_a_completed_job_returns_it_and_pays_nothing(task: RunTask) -> None:
    task.follow()
    task.service.end(task.name(1), "Completed")
    assert isinstance(task.start().next(), Done)
    assert len(task.service.created) == 1


def test_failure_is_raised_once_with_the_log_and_the_next_start_tries_again(task: RunTask) -> None:
    run, step = task.follow()
    with pytest.raises(ScriptError, match="no column age"):
        ended(run, step, task.service.end(task.name(1), "Failed", "AlgorithmError: exit code 1"))
    assert task.host.failed[0]["log_tail"]

    _, again = task.follow()
    assert (again.job_name, again.facts["attempt"]) == (task.name(2), 2)


def test_failure_that_nobody_saw_is_raised_before_anything_is_paid_again(task: RunTask) -> None:
    task.follow()
    task.service.end(task.name(1), "Failed", "AlgorithmError: exit code 1")
    with pytest.raises(ScriptError):
        task.start().next()
    assert len(task.service.created) == 1


def test_next_attempt_begins_after_a_stopping_job(task: RunTask) -> None:
    run, _ = task.follow()
    task.service.end(task.name(1), "Stopping")
    assert task.start().next() == AwaitStop(job_name=task.name(1))
    task.service.end(task.name(1), "Stopped")
    assert isinstance(run.next(), Follow)
    assert task.service.created == [task.name(1), task.name(2)]


def test_attached_job_that_a_kill_stopped_is_followed_by_another(task: RunTask) -> None:
    task.follow()
    run, step = task.follow()
    task.start().service.stop(task.name(1), is_kill=True)
    after = ended(run, step, task.service.jobs[task.name(1)])
    assert isinstance(after, Follow)
    assert after.job_name == task.name(2)


def test_kill_before_the_job_is_created_creates_none(task: RunTask) -> None:
    run = task.start()
    run.kill()
    with pytest.raises(JobStoppedError, match="before its job was created"):
        run.next()
    assert (task.service.created, task.ledger.notes) == ([], [])


def test_kill_while_the_job_is_created_stops_it(task: RunTask) -> None:
    run = task.start()

    def create(request: Any, facts: Any) -> dict[str, Any]:
        task.service.create(request)
        run.is_killed = True
        return {}

    run.job_type.create = create  # type: ignore[method-assign]
    with pytest.raises(JobStoppedError, match="while its job started"):
        run.next()
    assert task.service.calls[-1] == f"stop {task.name(1)}"
    assert task.service.was_killed(task.name(1))


def test_job_of_a_task_that_was_ended_meanwhile_is_stopped(task: RunTask) -> None:
    task.host.is_over = True
    with pytest.raises(JobStoppedError, match="ended while its job started"):
        task.start().next()
    assert task.service.calls[-1] == f"stop {task.name(1)}"


def test_job_of_a_deleted_run_that_takes_no_xcom_is_stopped(task: RunTask) -> None:
    task.host.is_over, task.host.refusal = True, RuntimeError("404: no such task instance")
    with pytest.raises(JobStoppedError, match="ended while its job started"):
        task.start().next()
    assert task.service.calls[-1] == f"stop {task.name(1)}"
    assert task.service.was_killed(task.name(1))


def test_job_of_a_task_whose_xcom_fails_runs_on_for_the_next_try(task: RunTask) -> None:
    task.host.refusal = RuntimeError("503")
    with pytest.raises(RuntimeError, match="503"):
        task.start().next()

    task.host.refusal = None
    _, step = task.follow()
    assert (step.job_name, step.was_attached) == (task.name(1), True)


def test_kill_stops_the_job_that_is_waited_for(task: RunTask) -> None:
    run, _ = task.follow()
    run.kill()
    assert task.service.calls[-1] == f"stop {task.name(1)}"
    assert task.service.was_killed(task.name(1))


def test_full_quota_is_waited_for_with_growing_pauses_and_costs_no_attempt(task: RunTask) -> None:
    task.service.refusals = [FULL] * 4
    run, quota, pauses = task.start(), None, []
    for _ in range(4):
        step = run.next(quota)
        assert isinstance(step, AwaitQuota)
        quota, pauses = step.quota, [*pauses, step.seconds]
    assert run.waits_for is None
    assert pauses[3] > pauses[0]

    job = run.next(quota)
    assert isinstance(job, Follow)
    assert (job.facts["attempt"], "quota_waited_s" in job.facts) == (1, True)
    assert task.ledger.notes.count(f"withdraw {task.name(1)}") == 4


def test_full_quota_of_a_rung_is_given_up_after_its_time_for_the_next_rung(task: RunTask) -> None:
    task.rungs = 2
    task.service.refusals = [FULL, FULL]
    run = task.start()
    step = run.next()
    assert isinstance(step, AwaitQuota)
    late = replace(step.quota, rung_began_at=step.quota.rung_began_at - 61)
    job = run.next(late)
    assert isinstance(job, Follow)
    assert job.facts["rung"] == 1


def test_quota_that_could_never_hold_the_job_goes_to_the_next_rung_or_is_raised(
    task: RunTask,
) -> None:
    task.rungs = 2
    task.service.refusals = [TOO_SMALL, TOO_SMALL]
    with pytest.raises(QuotaTooSmallError):
        task.start().next()
    task.service.refusals = [TOO_SMALL]
    _, job = task.follow()
    assert job.facts["rung"] == 1


def test_capacity_that_is_missing_is_followed_by_the_next_rung_in_the_same_start(
    task: RunTask,
) -> None:
    task.rungs = 2
    run, step = task.follow()
    step = ended(run, step, task.service.end(task.name(1), "Failed", NO_CAPACITY))
    assert isinstance(step, Follow)
    assert (step.job_name, step.facts["rung"]) == (task.name(2), 1)

    with pytest.raises(CapacityError):
        ended(run, step, task.service.end(task.name(2), "Failed", NO_CAPACITY))
    assert len(task.service.created) == 2


def test_name_that_is_taken_and_not_described_is_refused_after_some_tries(
    task: RunTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[int] = []
    monkeypatch.setattr(
        "trainyard_airflow.jobs.job_run.backoff_s", lambda n: pauses.append(n) or 0.0
    )
    task.service.refusals = [NameTakenError("taken")] * 5
    with pytest.raises(RejectedRequestError, match="describes no job of that name"):
        task.start().next()
    assert pauses == [1, 2, 3, 4]


def test_wait_for_a_stopping_job_keeps_what_was_waited_for_quota(task: RunTask) -> None:
    task.rungs = 2
    task.service.refusals = [FULL]
    run = task.start()
    waiting = run.next()
    assert isinstance(waiting, AwaitQuota)
    task.follow()
    task.service.end(task.name(1), "Stopping")

    step = run.next(waiting.quota)

    assert step == AwaitStop(job_name=task.name(1), quota=waiting.quota)


def test_time_that_is_over_stops_the_job_and_returns_one_that_ended_just_before(
    task: RunTask,
) -> None:
    task.follow()
    with pytest.raises(TimeLimitError, match="sent a stop request"):
        task.start().resume_late()
    assert task.service.calls[-1] == f"stop {task.name(1)}"

    late = RunTask()
    late.follow()
    late.service.end(late.name(1), "Completed")
    assert isinstance(late.start().resume_late(), Done)


ENDS = st.sampled_from(
    [
        ("Completed", None),
        ("Failed", "AlgorithmError: exit code 1"),
        ("Failed", NO_CAPACITY),
        ("Failed", "InternalServerError: lost"),
        ("Stopped", None),
    ]
)


@given(
    ends=st.lists(ENDS, min_size=1, max_size=8),
    rungs=st.integers(1, 3),
    lost=st.lists(st.booleans(), min_size=8, max_size=8),
    forgets=st.booleans(),
)
def test_a_start_pays_for_one_job_a_rung_and_a_completed_task_for_none(
    ends: list[Any], rungs: int, lost: list[bool], forgets: bool
) -> None:
    """Worker lost or not, memory kept or not: attempts follow each other, and never two run at once."""
    task = RunTask(rungs=rungs)
    remaining = iter(ends)
    for is_lost in lost:
        before = len(task.service.created)
        if forgets:
            task.store.clear()
        run = task.start()
        try:
            step = run.next()
            while isinstance(step, Follow):
                status, reason = next(remaining, ("Completed", None))
                snapshot = task.service.end(step.job_name, status, reason)
                if is_lost:
                    break
                step = ended(run, step, snapshot)
        except TrainingRunError:
            pass
        assert len(task.service.created) - before <= rungs
        if isinstance(step, Done):
            break
    names = [task.name(attempt) for attempt in range(1, len(task.service.created) + 1)]
    assert task.service.created == names
    if any(job.succeeded for job in task.service.jobs.values()):
        created = len(task.service.created)
        assert isinstance(task.start().next(), Done)
        assert len(task.service.created) == created
