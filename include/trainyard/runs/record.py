"""Record of one run: the content of report.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from trainyard.errors import ContractError
from trainyard.job_status import JobStatus
from trainyard.task_ids import TaskId
from trainyard.units import at_step

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "trainyard-run"
STOPPED_BY_RULE = "stopped by a rule"
STOPPED_BY_CAP = "stopped by its cost cap"
STOPPED_IDLE = "stopped: idle accelerators"
SUCCEEDED = "succeeded"
FAILED = "failed"
RUNNING = "running"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One task of the DAG. Times are epoch seconds, or None if the event has not happened.

    Attributes:
        asked_at: when the task's newest try began to wait for a person's answer.
        answered_at: end of this wait.
    """

    task_id: str
    state: str | None
    start: float | None = None
    end: float | None = None
    try_number: int = 0
    map_index: int = -1
    asked_at: float | None = None
    answered_at: float | None = None

    @property
    def seconds(self) -> float | None:
        """Duration of the task; None while it has not ended."""
        return None if self.start is None or self.end is None else max(0.0, self.end - self.start)

    @property
    def waits_for_person(self) -> bool:
        """True if the task waits for an answer. On Airflow 3.2, a task that waits is `deferred`."""
        if self.state == "deferred":
            return self.asked_at is not None and self.answered_at is None
        return self.state == "awaiting_input"

    @property
    def is_failed_watch(self) -> bool:
        """True if this is the failed task `watch_rules`; the run continues without it."""
        return self.task_id == TaskId.WATCH_RULES and self.state == "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One SageMaker job of the run.

    Attributes:
        task_id: the task that created the job.
        instance_groups: the groups of a heterogeneous cluster, as `JobSnapshot` has them; empty without groups.
        training_plan: ARN of the training plan whose instances the job used; None without one.
        attempts: number of jobs that the task has created so far, including this one.
        artifact_sha256: SHA-256 of the object at `artifact_uri`.
        transitions: secondary statuses, each with status, message, and start and end in epoch seconds.
        cost: `JobCost.to_dict()`.
        image_digest: digest that the image had when the job was created; None if it is not known.
        image_digest_unknown: why the digest is not known; None if it is known, or if it was not looked up.
        rung: index of the capacity tier that the job used; the first tier has index 0. None without a tier.
        rung_reason: why the job used this tier.
    """

    task_id: str
    name: str
    kind: str
    status: str
    arn: str = ""
    secondary_status: str | None = None
    instance_type: str | None = None
    instance_count: int = 1
    instance_groups: tuple[Mapping[str, Any], ...] = ()
    is_spot: bool = False
    training_plan: str | None = None
    attempts: int = 1
    interruptions: int = 0
    training_seconds: int | None = None
    billable_seconds: int | None = None
    created_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    image_uri: str | None = None
    image_digest: str | None = None
    image_digest_unknown: str | None = None
    final_metrics: Mapping[str, float] = field(default_factory=dict)
    artifact_uri: str | None = None
    artifact_sha256: str | None = None
    failure_reason: str | None = None
    transitions: tuple[Mapping[str, Any], ...] = ()
    cost: Mapping[str, Any] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    rung: int | None = None
    rung_reason: str | None = None

    @property
    def succeeded(self) -> bool:
        """True if the job completed."""
        return self.status == JobStatus.COMPLETED


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRecord:
    """One shard of the data set. `tokens` is None for tables."""

    split: str
    file: str
    rows: int
    bytes: int
    sha256: str
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """One source of a data mixture.

    Attributes:
        share: share of the training's samples.
        source_uri: address of the original data; None if unknown.
        dataset_uri: address of the sharded data set of this source.
        train_tokens: number of tokens in the train split of that data set.
    """

    name: str
    share: float
    source_uri: str | None
    dataset_uri: str
    train_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRecord:
    """Sharded data set on which a run trained.

    Attributes:
        mixture: the sources, if the data set is a mixture; otherwise empty.
        unigram_loss: loss on the validation split, in nats per token, of a model that predicts each token by
            its smoothed frequency in the train split. For a mixture, it is the weighted mean of the sources'
            losses. None if it is not known, and for tables.
    """

    uri: str
    fingerprint: str
    kind: str
    source_uri: str | None = None
    source_bytes: int | None = None
    source_files: int | None = None
    tokenizer: str | None = None
    bad_rows: int = 0
    was_reused: bool = False
    unigram_loss: float | None = None
    mixture: tuple[SourceRecord, ...] = ()
    shards: tuple[ShardRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyStop:
    """Stop of a training by its cost cap or for idle accelerators; the model so far becomes the run's model.

    Attributes:
        step: step of the last checkpoint; None without one.
        last_checkpoint: address of the last checkpoint; None without one.
        cost_usd: cost of the stopped job; None if its price is unknown.
        max_cost_usd: the training's part of the run's cap; None without a cap.
    """

    step: int | None
    last_checkpoint: str | None = None
    cost_usd: float | None = None
    max_cost_usd: float | None = None

    @property
    def at_step(self) -> str:
        """` at step N`; empty if there is no checkpoint."""
        return at_step(self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The record of one run.

    Attributes:
        status: `succeeded`, `failed`, `running`, `stopped by a rule`, `stopped by its cost cap` or
            `stopped: idle accelerators`.
        history: metric events of the training script, oldest first (`event`, `time` and the event's values),
            thinned if there are very many.
        cost: the costs of the run, with these members. A member without a value is None or absent.

            - total_usd: known costs of all jobs and warm pools, including jobs that only the ledger has.
            - is_complete: whether the cost of every job is known, and none can still cost money.
            - warm_pool_usd: the part of total_usd for warm pools.
            - ceiling_usd: the most that the run can cost.
            - once_usd: the most that the run can cost with one attempt per job.
            - budget_usd, max_cost_usd: the limits in the run's conf.
            - estimate_usd: preflight's estimate, with low, expected and high.
            - estimate_error: total_usd / expected - 1.
            - saved_usd: amount that spot saved.
            - on_demand_usd: the cost of the same seconds without spot.
            - saved_fraction: saved_usd / on_demand_usd.
            - tokens_trained: tokens of all steps up to the highest logged step; redone steps count once.
            - usd_per_million_tokens, usd_per_epoch: cost of all attempts of the training per million tokens,
              and per epoch.
            - usd_per_loss_point: training cost divided by the decrease of the validation loss from its first
              value to its lowest.
            - note: a remark on the prices.
            - bill_due_at: on AWS, the time from which the bill is complete, epoch seconds.
            - deployment: on AWS, the name of the Airflow deployment, which is also in the bill's tags.
            - bill: AWS's bill (`RunBill`), once `trainyard bill --write` has stored it.
            - bill_error: the bill's total divided by the ledger's total, minus 1; stored with `bill`.
        continuity: `Continuity.to_dict()` of the training task; None if it was not measured.
        rules: the content of rules.json, the rules' verdicts on the training; None if no rule was evaluated.
        profile: the summary of profile.json, the training's time by part; None if there is no profile.
        tuning: the content of tuning.json, the search before the training; None if there was none.
        goodput: `Goodput.to_dict()`: the run's wall time by cause; None until the run has begun and ended.
        ledger: `Ledger.to_dict()`: the paid resources of the run; None if it kept no ledger.
        verdict: rule, step, action, evidence, last_checkpoint and rules_uri of the rule that ended the
            training; None if none did.
        cap_stop: stop of the training by its cost cap; None without such a stop.
        idle_stop: stop of the training because it used no accelerator; None without such a stop.
        failure: `task_id` and the error as `TrainingRunError.to_dict()` or `{"what": text}`; None if none.
    """

    run_id: str
    dag_id: str
    status: str = RUNNING
    run_type: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    conf: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[TaskRecord, ...] = ()
    jobs: tuple[JobRecord, ...] = ()
    dataset: DatasetRecord | None = None
    history: tuple[Mapping[str, Any], ...] = ()
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    code_sha256: str | None = None
    model_package_arn: str | None = None
    model_package_group: str | None = None
    approval_status: str | None = None
    cost: Mapping[str, Any] = field(default_factory=dict)
    continuity: Mapping[str, Any] | None = None
    rules: Mapping[str, Any] | None = None
    profile: Mapping[str, Any] | None = None
    tuning: Mapping[str, Any] | None = None
    goodput: Mapping[str, Any] | None = None
    ledger: Mapping[str, Any] | None = None
    verdict: Mapping[str, Any] | None = None
    cap_stop: MoneyStop | None = None
    idle_stop: MoneyStop | None = None
    failure: Mapping[str, Any] | None = None
    format: str = FORMAT
    version: int = VERSION

    @property
    def has_failed_watch(self) -> bool:
        """True if the task `watch_rules` failed, so the training was not watched to its end."""
        return any(task.is_failed_watch for task in self.tasks)

    @property
    def wall_seconds(self) -> float | None:
        """Seconds from the run's start to its end; None while it runs."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0.0, self.ended_at - self.started_at)

    @property
    def is_billed(self) -> bool:
        """True if the run has jobs, or if its total cost is not 0.

        The second condition covers jobs that are only in the run's ledger, and an unknown total.
        """
        return bool(self.jobs) or self.cost.get("total_usd", 0.0) != 0.0

    def job_of(self, task_id: str) -> JobRecord | None:
        """Return the last job of a task; None if it has none."""
        return next((job for job in reversed(self.jobs) if job.task_id == task_id), None)

    def to_json(self) -> str:
        """Return the record as an indented JSON document."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the record that a document describes.

        Raises:
            ContractError: the document is not a run record of this version.
        """
        try:
            return cls(**_members(json.loads(text)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ContractError(
                "the document is not a run record",
                got=f"{type(error).__name__}: {error}",
                allowed=f"format {FORMAT}, version {VERSION}",
                next_step="read it with the release of Trainyard that wrote it",
            ) from error


def _members(data: dict[str, Any]) -> dict[str, Any]:
    if (data["format"], data["version"]) != (FORMAT, VERSION):
        raise ValueError(f"format {data['format']!r}, version {data['version']!r}")
    dataset = data["dataset"]
    if dataset is not None:
        shards = tuple(ShardRecord(**each) for each in dataset["shards"])
        mixture = tuple(SourceRecord(**each) for each in dataset.get("mixture") or ())
        dataset = DatasetRecord(**{**dataset, "shards": shards, "mixture": mixture})
    jobs = (
        {
            **each,
            "transitions": tuple(each["transitions"]),
            "instance_groups": tuple(each.get("instance_groups", ())),
        }
        for each in data["jobs"]
    )
    return {
        **{name: value for name, value in data.items() if name not in _NO_LONGER_WRITTEN},
        "tasks": tuple(TaskRecord(**each) for each in data["tasks"]),
        "jobs": tuple(JobRecord(**each) for each in jobs),
        "dataset": dataset,
        "history": tuple(data["history"]),
        **{name: MoneyStop(**data[name]) for name in ("cap_stop", "idle_stop") if data.get(name)},
    }


_NO_LONGER_WRITTEN = frozenset({"links", "resources"})
"""Members of earlier documents. They were always empty."""
