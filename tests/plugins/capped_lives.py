"""Simulated lives of runs under a cost cap: the real decisions, a SageMaker and its bill made of seeded chance.

What is real: `JobRun`, the job types' `place`, `place_of`, `patience`, `hands_on`, `completed`, `known_error`, and
`reason_to_stop`, by which a follower stops a job. What is simulated is the far end: the service with its clock, its
bounds and its bill, S3, and who is alive to follow.
"""

# ruff: noqa: ARG002, S311 - the doubles have the signatures of what they stand for; chance is seeded, and no secret
from __future__ import annotations

import io
import random
import tarfile
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tests.plugins.test_job_run import FakeJobs, ListLedger, MemoryStore, RunHost
from trainyard.catalog.instances import catalogue
from trainyard.errors import BudgetExceededError, SpecError, TrainingRunError
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard.sagemaker_api.snapshot import JobSnapshot, Transition
from trainyard.specs.metrics import MetricDefinition
from trainyard.specs.processing_job import ProcessingJobSpec
from trainyard.specs.training_job import TrainingJobSpec
from trainyard.specs.tuning_job import TuningJobSpec
from trainyard_airflow.jobs.cost_cap import ENDED_BY_CAP
from trainyard_airflow.jobs.job_run import JobRun
from trainyard_airflow.jobs.processing import ProcessingJobType
from trainyard_airflow.jobs.steps import Done, Follow
from trainyard_airflow.jobs.task_jobs import TaskKey
from trainyard_airflow.jobs.task_memory import TaskMemory
from trainyard_airflow.jobs.training import TrainingJobType
from trainyard_airflow.jobs.tuning import TuningJobType
from trainyard_airflow.triggers.stop_criteria import reason_to_stop

if TYPE_CHECKING:
    from trainyard.sagemaker_api.stop_cause import StopCause

TYPES = ("ml.m5.large", "ml.m5.xlarge", "ml.g5.xlarge", "ml.z9.huge")
RESERVE_S, GRACE_S, LONGEST_UPLOAD_S, DOWNLOAD_UNSEEN_S = 300, 120, 60, 30
MOST_STARTS, MOST_TRIES = 4, 4


@cache
def archive() -> bytes:
    """Return a model.tar.gz with one file."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as files:
        files.addfile(tarfile.TarInfo("weights.pt"))
    return content.getvalue()


@dataclass
class SimulatedBucket:
    """S3: models, and a checkpoint for each 60 s of training."""

    keys: dict[str, float] = field(default_factory=dict)

    def head_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        if Key not in self.keys:
            raise ClientError({"Error": {"Code": "404", "Message": ""}}, "HeadObject")
        return {}

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        assert Key in self.keys
        content = archive()
        return {"Body": io.BytesIO(content), "ETag": '"1"', "ContentLength": len(content)}

    def get_paginator(self, _: str) -> SimulatedBucket:
        return self

    def paginate(self, *, Prefix: str, **_: Any) -> list[dict[str, Any]]:  # noqa: N803
        found = [
            {"Key": key, "LastModified": datetime.fromtimestamp(at, UTC)}
            for key, at in self.keys.items()
            if key.startswith(Prefix)
        ]
        return [{"Contents": found}]


@dataclass
class CappedLife:
    """Chance and circumstances of one run: what its jobs meet, and whether anybody follows them."""

    chance: random.Random
    clock: float = 1e9
    s3: SimulatedBucket = field(default_factory=SimulatedBucket)
    jobs: dict[str, JobSnapshot] = field(default_factory=dict)
    causes: dict[str, StopCause] = field(default_factory=dict)
    trained_s: float = 0.0
    needs_s: float = 0.0
    saves_model: bool = True

    # The service, as `SageMakerJobs` has it.

    def describe(self, name: str) -> JobSnapshot | None:
        return self.jobs.get(name)

    def create(self, request: dict[str, Any]) -> str:
        assert request["name"] not in self.jobs
        self.jobs[request["name"]] = JobSnapshot(
            arn=request["name"], status="InProgress", created_at=self.clock, **request
        )
        return str(request["name"])

    def tags_known(self, arn: str) -> dict[str, str]:
        return {}

    def was_killed(self, arn: str) -> bool:
        return False

    def stop_cause(self, arn: str) -> StopCause | None:
        return self.causes.get(arn)

    # The life of a job.

    def live(self, step: Follow) -> JobSnapshot:
        """Return the job's end; a follower, if there is one, stops it by the real decision."""
        job = self.jobs[step.job_name]
        is_followed = self.chance.random() < 0.7
        starts = self.chance.randint(1, MOST_STARTS)
        for start in range(starts):
            job = self._begin(job, is_followed)
            is_last = start + 1 == starts
            job, is_over = self._train(job, step, is_followed, is_last)
            if is_over:
                break
            job = self._enter(job, "Interrupted" if job.is_spot else "Restarting")
            self.clock += self.chance.uniform(0, 4000)
        return job

    def _begin(self, job: JobSnapshot, is_followed: bool) -> JobSnapshot:
        job = self._enter(job, "Starting")
        self.clock += self.chance.uniform(0, 600)
        job = self._enter(job, "Downloading")
        job = replace(job, started_at=job.started_at or self.clock)
        # Nobody stops a job for its downloads if nobody follows it: then the reserve pays for them.
        self.clock += self.chance.uniform(0, 200 if is_followed else DOWNLOAD_UNSEEN_S)
        return self._enter(job, "Training")

    def _train(
        self, job: JobSnapshot, step: Follow, is_followed: bool, is_last: bool
    ) -> tuple[JobSnapshot, bool]:
        """Train until the end of the work, of `max_run`, of the follower's patience, or of the instances."""
        lost_at = self.clock + self.chance.uniform(0, 3000)
        trained = sum(
            (each.end or self.clock) - each.start
            for each in job.transitions
            if each.status == "Training"
        )
        while True:
            left_s = float(job.max_run_s or 0) - trained
            poll_s = min(self.chance.uniform(3, 15), left_s, self.needs_s - self.trained_s)
            self.clock += max(0.0, poll_s)
            trained, self.trained_s = trained + poll_s, self.trained_s + poll_s
            if self.trained_s >= self.needs_s - 1e-6:
                return self._ended(job, "Completed"), True
            if trained >= float(job.max_run_s or 0) - 1e-6:
                return self._ended(job, "Stopped", "MaxRuntimeExceeded"), True
            # The machines' clocks may jump: a follower goes by the service's.
            verdict = reason_to_stop(job, patience=step.patience, heartbeat_at=None, now=self.clock)
            if is_followed and verdict is not None:
                self.causes[job.arn] = verdict.cause
                return self._ended(job, "Stopped", "Stopped"), True
            if self.clock >= lost_at:
                if is_last:
                    return self._ended(job, "Failed", reason="InternalServerError: lost"), True
                return job, False

    def _ended(
        self, job: JobSnapshot, status: str, secondary: str | None = None, reason: str | None = None
    ) -> JobSnapshot:
        if status == "Stopped":
            job = self._enter(job, "Stopping")
            self.clock += self.chance.uniform(0, GRACE_S)
        if status != "Failed":
            job = self._enter(job, "Uploading")
            self.clock += self.chance.uniform(0, LONGEST_UPLOAD_S)
            if self.saves_model or status == "Completed":
                self.s3.keys[f"{job.name}/model.tar.gz"] = self.clock
        self.s3.keys[f"c/step-{int(self.trained_s // 60):08d}/manifest.json"] = self.clock
        job = self._enter(job, secondary or status)
        seconds = job.billed_seconds_at(self.clock)
        discount = self.chance.uniform(0.3, 0.9) if job.is_spot else 0.0
        job = replace(
            job,
            status=status,
            ended_at=self.clock,
            failure_reason=reason,
            model_artifact=f"s3://b/{job.name}/model.tar.gz",
            training_seconds=round(seconds),
            billable_seconds=max(1, round(seconds * (1 - discount))),
        )
        self.jobs[job.name] = job
        return job

    def _enter(self, job: JobSnapshot, status: str) -> JobSnapshot:
        *before, last = job.transitions or (None,)
        ended = [replace(last, end=self.clock)] if last is not None else []
        transitions = (*before, *ended, Transition(status=status, start=self.clock))
        job = replace(job, secondary_status=status, transitions=transitions)
        self.jobs[job.name] = job
        return job


class SimulatedTraining(TrainingJobType):
    """Training jobs whose request the simulation reads."""

    def render(self, name: str, *, place: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        spec = self.spec
        return {
            "kind": "training",
            "name": name,
            "instance_type": spec.instance_type,
            "instance_count": spec.instance_count,
            "is_spot": spec.use_spot_instances,
            "checkpoint_s3_uri": "s3://b/c/",
            "max_run_s": place.bounded_run_s(spec.max_run),
        }, {}

    def telling_log(self, name: str) -> list[str]:
        return []


class SimulatedEvaluation(ProcessingJobType):
    """Processing jobs likewise."""

    def render(self, name: str, *, place: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        spec = self.spec
        return {
            "kind": "processing",
            "name": name,
            "instance_type": spec.instance_type,
            "max_run_s": place.bounded_run_s(spec.max_run),
        }, {}

    def telling_log(self, name: str) -> list[str]:
        return []


def task_jobs(life: CappedLife, task_id: str, kind: JobKind) -> FakeJobs:
    clients = SimpleNamespace(deployment=None, root="s3://b/trainyard", client=lambda _: life.s3)
    return FakeJobs(
        task=TaskKey(dag_id="dag", run_id="run", task_id=task_id),
        kind=kind,
        clients=clients,  # type: ignore[arg-type]
        project=Path("/project"),
        service=life,
    )


def run_task(life: CappedLife, make: Any, store: MemoryStore) -> tuple[str, Any]:
    """Return how a task ended, with as many tries as it has: its result, or its error."""
    for _ in range(MOST_TRIES):
        if life.chance.random() < 0.3:
            store.clear()  # a scheduler or a state store that lost what it knew
        run = JobRun(
            job_type=make(),
            memory=TaskMemory(store),
            ledger=ListLedger(),  # type: ignore[arg-type]
            host=RunHost(),
        )
        try:
            step = run.next()
            while isinstance(step, Follow):
                snapshot = life.live(step)
                # Of a lost worker the next one finds the ended job by itself.
                is_lost = life.chance.random() < 0.2
                step = run.next() if is_lost else run.ended(snapshot, step.facts)
        except BudgetExceededError as error:
            return "no money", error
        except SpecError as error:
            return "refused", error
        except TrainingRunError:
            continue
        assert isinstance(step, Done)
        return "done", step.result
    return "failed", None


@dataclass(frozen=True)
class LifeOutcome:
    """End of a simulated run: its cap, its bill in USD, and what it left."""

    end: str
    cap_usd: float
    billed_usd: float
    has_model: bool
    num_jobs: int


def live_a_run(seed: int) -> LifeOutcome:
    """Return the end of one run: perhaps a search, a training with its attempts, and the evaluation of its model."""
    chance = random.Random(seed)
    life = CappedLife(chance=chance, needs_s=chance.uniform(100, 20_000))
    life.saves_model = chance.random() < 0.9
    instance_type, count = chance.choice(TYPES), chance.randint(1, 4)
    cap = chance.uniform(0.05, 2.0)
    evaluation = ProcessingJobSpec(role="r", instance_type="ml.m5.large", max_run=600)
    reserve = 0.115 / 3600 * (600 + RESERVE_S)
    searched = _search(life, chance, instance_type, count, cap * 0.3)
    left = max(0.001, cap - searched - reserve)
    spec = TrainingJobSpec(
        role="r",
        output_path="s3://b/o",
        instance_type=instance_type,
        instance_count=count,
        use_spot_instances=(is_spot := chance.random() < 0.4),
        max_run=(longest := chance.randint(60, 20_000)),
        max_wait=3 * longest if is_spot else None,
        max_cost_usd=left,
        stop_reserve_s=RESERVE_S,
        checkpoint_s3_uri="s3://b/c/",
    )
    jobs = task_jobs(life, "train", JobKind.TRAINING)
    end, result = run_task(
        life,
        lambda: SimulatedTraining(jobs, spec, context={}, mask=lambda _: None),
        MemoryStore(),
    )
    if end == "done":
        end = "stopped by its cap" if result.get("ended_by") == ENDED_BY_CAP else "completed"
        life.trained_s, life.needs_s = 0.0, chance.uniform(10, 700)
        paid = searched + _bill(life)
        measured = replace(evaluation, max_cost_usd=cap - paid)
        measuring = task_jobs(life, "evaluate", JobKind.PROCESSING)
        run_task(life, lambda: SimulatedEvaluation(measuring, measured), MemoryStore())
    has_model = end in {"stopped by its cap", "completed"} and any(
        key == result["model_artifact"].removeprefix("s3://b/") for key in life.s3.keys
    )
    return LifeOutcome(
        end=end,
        cap_usd=cap,
        billed_usd=searched + _bill(life),
        has_model=has_model,
        num_jobs=len(life.jobs),
    )


def _bill(life: CappedLife) -> float:
    """Return the service's bill of the jobs, by itself: whole seconds x instances x price."""
    prices = catalogue().types
    return sum(
        (each.billable_seconds or 0)
        * each.instance_count
        * (prices[str(each.instance_type)].price_usd_per_hour or 0.0)
        / 3600
        for each in life.jobs.values()
    )


def _search(
    life: CappedLife, chance: random.Random, instance_type: str, count: int, share_usd: float
) -> float:
    """Return the bill of a search that uses all the time it may, and of its trials' stops; 0 if there is none."""
    if chance.random() < 0.6:
        return 0.0
    at_once = chance.randint(1, 4)
    search = TuningJobSpec(
        training=TrainingJobSpec(
            role="r",
            output_path="s3://b/o",
            instance_type=instance_type,
            instance_count=count,
            max_run=600,
            metric_definitions=(MetricDefinition(name="loss", regex="x(.)"),),
        ),
        hyperparameter_ranges={"a": {"type": "continuous", "min_value": 0, "max_value": 1}},
        objective_metric_name="loss",
        objective_type="Minimize",  # type: ignore[arg-type]
        max_jobs=20,
        max_parallel_jobs=at_once,
        max_cost_usd=share_usd,
        stop_reserve_s=RESERVE_S,
    )
    kind = TuningJobType(task_jobs(life, "tune", JobKind.TUNING), search)
    try:
        runtime_s = kind.place([]).max_runtime_s or 0
    except (BudgetExceededError, SpecError):
        return 0.0
    stop_s = chance.uniform(0, GRACE_S + LONGEST_UPLOAD_S)
    price = catalogue().types[instance_type].price_usd_per_hour or 0.0
    return float((runtime_s + stop_s) * at_once * count * price / 3600)


def table(outcomes: list[LifeOutcome]) -> str:
    """Return how the runs ended, as lines."""
    ends = Counter(each.end for each in outcomes)
    over = sum(each.billed_usd > each.cap_usd for each in outcomes)
    share = max(each.billed_usd / each.cap_usd for each in outcomes)
    rows = [f"{count:>6}  {end}" for end, count in ends.most_common()]
    jobs = sum(each.num_jobs for each in outcomes)
    return "\n".join(
        [*rows, f"{jobs:>6}  jobs", f"{over:>6}  over the cap (at most {share:.1%} of it)"]
    )
