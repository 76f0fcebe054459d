"""Snapshot of a job, read from a Describe response; one frozen class for all kinds of jobs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from trainyard.errors import ContractError
from trainyard.job_status import TERMINAL_STATUSES, JobStatus
from trainyard.sagemaker_api.request_parts import STATISTICS_VARIABLE
from trainyard.sagemaker_api.rule_stop import rule_evaluations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WARM_POOL_HELD = "Available"
WAITING_STATUSES = frozenset(
    {
        "Pending",
        "Starting",
        "LaunchingMLInstances",
        "PreparingTrainingStack",
        "Interrupted",
        "Restarting",
    }
)
"""Secondary statuses of a job without working instances."""
_PENDING_LATE_S = 60.0
"""Seconds by which a job's first transition may be later than the time from which the service counts the wait."""
_STOPPED_LATE_S = 300.0
"""Seconds after the limit on a wait within which the service stops a job."""
_ENDING_STATUSES = TERMINAL_STATUSES | {"Stopping", "MaxWaitTimeExceeded", "MaxRuntimeExceeded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One secondary status, with its start and end (epoch seconds; the end is None while it lasts)."""

    status: str
    start: float
    end: float | None = None
    message: str | None = None

    @property
    def seconds(self) -> float | None:
        """Duration; None while it lasts."""
        return None if self.end is None else max(0.0, self.end - self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """State of a training, processing, tuning or AutoML job, from the response of Describe.

    Times are epoch seconds, durations seconds.

    Attributes:
        kind: `training`, `processing`, `tuning` or `automl`. A tuning job has the instances, output and checkpoints of
            its trials. `final_metrics` of a tuning or AutoML job is its best objective so far.
        status: InProgress, Completed, Failed, Stopping, Stopped, Deleting. Only Completed is
            success.
        secondary_status: the more detailed state; None for a processing job.
        instance_type: instance type of the job; with instance groups, their types separated by commas.
        instance_count: instances over all groups.
        instance_groups: the job's groups, each with instance_group_name, instance_type and instance_count; empty
            without groups.
        training_plan: ARN of the training plan whose instances a training job uses.
        max_pending_s: seconds of waiting for instances after which the service stops a training job on an accelerated
            type; None = no limit.
        billable_seconds: billed seconds per instance; None until the service reports them, 0 if an ended job never had
            instances. For a processing job, which has no such member, the duration of its run.
        children_usd: cost of the jobs of an ended AutoML job in USD; None for other jobs, and if a price is unknown.
        final_metrics: last value of each metric definition, unless it is NaN or infinite.
        model_artifact: S3 URI of model.tar.gz.
        hook_s3_uri: output of the Debugger hook of a training job; None without a hook.
        statistics_s3_uri: S3 prefix of the statistics of a training job's hosts.
        warm_pool_seconds: seconds per instance for which the warm pool of an ended job is or was billed.
        rule_evaluations: evaluations of the service's Debugger and profiler, from `rule_stop.rule_evaluations`.
    """

    kind: str
    name: str
    arn: str
    status: str
    secondary_status: str | None = None
    status_message: str | None = None
    failure_reason: str | None = None
    exit_message: str | None = None
    instance_type: str | None = None
    instance_count: int = 1
    instance_groups: tuple[Mapping[str, Any], ...] = ()
    is_spot: bool = False
    training_plan: str | None = None
    created_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    modified_at: float | None = None
    training_seconds: int | None = None
    billable_seconds: int | None = None
    children_usd: float | None = None
    max_run_s: int | None = None
    max_wait_s: int | None = None
    max_pending_s: int | None = None
    final_metrics: Mapping[str, float] = field(default_factory=dict)
    model_artifact: str | None = None
    model_package_arn: str | None = None
    output_path: str | None = None
    checkpoint_s3_uri: str | None = None
    hook_s3_uri: str | None = None
    statistics_s3_uri: str | None = None
    image_uri: str | None = None
    warm_pool_status: str | None = None
    warm_pool_seconds: int | None = None
    transitions: tuple[Transition, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    rule_evaluations: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_terminal(self) -> bool:
        """True if the job has ended, with or without success."""
        return self.status in TERMINAL_STATUSES

    @property
    def succeeded(self) -> bool:
        """True if the job completed. Stopped is not success."""
        return self.status == JobStatus.COMPLETED

    @property
    def holds_warm_pool(self) -> bool:
        """True if the job has ended, and its instances still cost money as a warm pool."""
        return self.is_terminal and self.warm_pool_status == WARM_POOL_HELD

    @property
    def interruptions(self) -> int:
        """Number of spot interruptions."""
        return sum(transition.status == "Interrupted" for transition in self.transitions)

    @property
    def last_wait(self) -> tuple[float, float | None] | None:
        """Start and end of the job's last wait for instances, epoch seconds; the end is None while it waits.

        None if there was no wait, or if the job has worked since its last wait (status `Downloading` or later).
        """
        waits: list[Transition] = []
        for each in reversed(self.transitions):
            if each.status in WAITING_STATUSES:
                waits.append(each)
            elif waits or each.status not in _ENDING_STATUSES:
                break
        if not waits:
            return None
        ended = waits[0].end
        return waits[-1].start, self.ended_at if ended is None and self.is_terminal else ended

    @property
    def reached_max_pending(self) -> bool:
        """True if the job's last wait for instances ended because it had lasted `max_pending_s`.

        The service stops a job within minutes after the job's wait has reached `max_pending_s`. A much
        longer wait is possible because the service ignores this limit for types without accelerators. If
        the job was stopped after a much longer wait, a person stopped it, and the result is False.

        With a training plan, the limit counts only the time in which the plan is active. For such a job the result
        is therefore True after any wait that is not shorter than the limit.
        """
        wait = self.last_wait
        if self.max_pending_s is None or wait is None or wait[1] is None:
            return False
        excess_s = wait[1] - wait[0] - self.max_pending_s
        is_in_time = self.training_plan is not None or excess_s <= _STOPPED_LATE_S
        return excess_s >= -_PENDING_LATE_S and is_in_time

    @property
    def waiting_seconds(self) -> float | None:
        """Sum of the seconds of all waits for instances; None if the service reports no transitions.

        A wait that still lasts counts up to the job's last change (`modified_at`).
        """
        if not self.transitions:
            return None
        now = self.ended_at or self.modified_at
        waits = (t for t in self.transitions if t.status in WAITING_STATUSES)
        return sum(max(0.0, (t.end or now or t.start) - t.start) for t in waits)

    def billed_seconds_at(self, now: float) -> float:
        """Return an upper bound of the billed seconds per instance at `now`, epoch seconds by the service's clock.

        These are the billed seconds if the service reports them, otherwise the seconds in which the job had instances,
        over all its starts. The bill for spot instances is lower. If the clock runs backwards, the result is not
        negative.
        """
        if self.billable_seconds is not None:
            return float(self.billable_seconds)
        end = self.ended_at or now
        if not self.transitions:
            return 0.0 if self.started_at is None else max(0.0, end - self.started_at)
        seconds, has_instances = 0.0, False
        for each in self.transitions:
            is_stopping = each.status == "Stopping" and has_instances
            has_instances = is_stopping or each.status not in WAITING_STATUSES | _ENDING_STATUSES
            if has_instances:
                seconds += max(0.0, (each.end or end) - each.start)
        return seconds

    @property
    def wall_seconds(self) -> float | None:
        """Seconds from creation to the end; None while the job runs."""
        if self.created_at is None or self.ended_at is None:
            return None
        return max(0.0, self.ended_at - self.created_at)

    @classmethod
    def from_describe(cls, description: Mapping[str, Any]) -> Self:
        """Build the snapshot from the Describe response of a training, processing, tuning or AutoML job.

        Raises:
            ContractError: the mapping is not the response for such a job.
        """
        if "AutoMLJobName" in description:
            return cls(**_automl(description))
        if "HyperParameterTuningJobName" in description:
            return cls(**_tuning(description))
        if "TrainingJobName" in description:
            return cls(**_training(description))
        if "ProcessingJobName" in description:
            return cls(**_processing(description))
        raise ContractError(
            "the Describe response is not that of a job",
            got=f"the keys {', '.join(sorted(map(str, description))[:8])}",
            allowed="a response for a training, processing, tuning or AutoML job",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the snapshot as JSON-safe data, including the derived properties."""
        transitions = [{**asdict(t), "seconds": t.seconds} for t in self.transitions]
        derived = {
            "is_terminal": self.is_terminal,
            "succeeded": self.succeeded,
            "interruptions": self.interruptions,
            "waiting_seconds": self.waiting_seconds,
            "wall_seconds": self.wall_seconds,
        }
        rules = [dict(each) for each in self.rule_evaluations]
        groups = [dict(each) for each in self.instance_groups]
        lists = {
            "transitions": transitions,
            "rule_evaluations": rules,
            "instance_groups": groups,
        }
        return {**asdict(self), **lists, **derived}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the snapshot from the result of `to_dict`; unknown members are ignored."""
        known = {each.name for each in fields(cls)}
        members = {name: value for name, value in data.items() if name in known}
        members["transitions"] = tuple(
            Transition(**{k: v for k, v in each.items() if k != "seconds"})
            for each in data.get("transitions", ())
        )
        members["rule_evaluations"] = tuple(data.get("rule_evaluations", ()))
        members["instance_groups"] = tuple(data.get("instance_groups", ()))
        return cls(**members)


def created_at(answer: Mapping[str, Any]) -> float:
    """Return a resource's creation time in epoch seconds, from its Describe response or its row of a listing."""
    return epoch(answer["CreationTime"]) or 0.0


def training_ended_at(answer: Mapping[str, Any]) -> float | None:
    """Return the time in epoch seconds at which a training job ended; None while it runs.

    The time is read from the job's Describe response or from its row of a listing (`answer`).
    """
    return epoch(answer.get("TrainingEndTime"))


def hyperparameters_of(description: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the hyperparameters, as wire text, in the Describe response of a training job."""
    values: Mapping[str, str] = description.get("HyperParameters", {})
    return values


def settings_of(description: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Return all environments and hyperparameters in the Describe response of a job.

    Those of a tuning job's training job definitions are included.
    """
    definitions = description.get("TrainingJobDefinitions") or [
        description.get("TrainingJobDefinition", {})
    ]
    parts = [description, *definitions]
    names = ("Environment", "HyperParameters", "StaticHyperParameters")
    return [part[name] for part in parts for name in names if part.get(name)]


def epoch(moment: object) -> float | None:
    """Return a time of a response in epoch seconds; None if the response has no time."""
    if isinstance(moment, datetime):
        return moment.timestamp()
    return float(moment) if isinstance(moment, (int, float)) else None


def _training(d: Mapping[str, Any]) -> dict[str, Any]:
    transitions = tuple(_transition(each) for each in d.get("SecondaryStatusTransitions", ()))
    stopping = d.get("StoppingCondition", {})
    return {
        "kind": "training",
        "name": d["TrainingJobName"],
        "arn": d.get("TrainingJobArn", ""),
        "status": d["TrainingJobStatus"],
        "secondary_status": d.get("SecondaryStatus"),
        "status_message": transitions[-1].message if transitions else None,
        "failure_reason": d.get("FailureReason") or None,
        **_cluster(d.get("ResourceConfig", {})),
        "is_spot": bool(d.get("EnableManagedSpotTraining", False)),
        "training_plan": d.get("ResourceConfig", {}).get("TrainingPlanArn"),
        "created_at": epoch(d.get("CreationTime")),
        "started_at": epoch(d.get("TrainingStartTime")),
        "ended_at": epoch(d.get("TrainingEndTime")),
        "modified_at": epoch(d.get("LastModifiedTime")),
        "training_seconds": d.get("TrainingTimeInSeconds"),
        "billable_seconds": _billed_s(
            d.get("BillableTimeInSeconds"), d["TrainingJobStatus"], d.get("TrainingStartTime")
        ),
        "max_run_s": stopping.get("MaxRuntimeInSeconds"),
        "max_wait_s": stopping.get("MaxWaitTimeInSeconds"),
        "max_pending_s": stopping.get("MaxPendingTimeInSeconds"),
        "final_metrics": _finite_metrics(d.get("FinalMetricDataList", ())),
        "model_artifact": d.get("ModelArtifacts", {}).get("S3ModelArtifacts"),
        "model_package_arn": d.get("OutputModelPackageArn"),
        "output_path": d.get("OutputDataConfig", {}).get("S3OutputPath"),
        "checkpoint_s3_uri": d.get("CheckpointConfig", {}).get("S3Uri"),
        "hook_s3_uri": d.get("DebugHookConfig", {}).get("S3OutputPath"),
        "statistics_s3_uri": d.get("Environment", {}).get(STATISTICS_VARIABLE),
        "image_uri": d.get("AlgorithmSpecification", {}).get("TrainingImage"),
        "warm_pool_status": d.get("WarmPoolStatus", {}).get("Status"),
        "warm_pool_seconds": d.get("WarmPoolStatus", {}).get(
            "ResourceRetainedBillableTimeInSeconds"
        ),
        "transitions": transitions,
        "rule_evaluations": rule_evaluations(d),
    }


def _processing(d: Mapping[str, Any]) -> dict[str, Any]:
    started, ended = epoch(d.get("ProcessingStartTime")), epoch(d.get("ProcessingEndTime"))
    ran = None if started is None or ended is None else max(0, round(ended - started))
    outputs = d.get("ProcessingOutputConfig", {}).get("Outputs", ())
    return {
        "kind": "processing",
        "name": d["ProcessingJobName"],
        "arn": d.get("ProcessingJobArn", ""),
        "status": d["ProcessingJobStatus"],
        "failure_reason": d.get("FailureReason") or None,
        "exit_message": d.get("ExitMessage") or None,
        **_cluster(d.get("ProcessingResources", {}).get("ClusterConfig", {})),
        "created_at": epoch(d.get("CreationTime")),
        "started_at": started,
        "ended_at": ended,
        "modified_at": epoch(d.get("LastModifiedTime")),
        "training_seconds": ran,
        "billable_seconds": _billed_s(ran, d["ProcessingJobStatus"], started),
        "max_run_s": d.get("StoppingCondition", {}).get("MaxRuntimeInSeconds"),
        "image_uri": d.get("AppSpecification", {}).get("ImageUri"),
        "outputs": {
            each["OutputName"]: each["S3Output"]["S3Uri"] for each in outputs if "S3Output" in each
        },
    }


def _billed_s(reported_s: int | None, status: str, started: object) -> int | None:
    """Return the billed seconds that the service reports (`reported_s`).

    For an ended job that never had instances, the service reports none. The result is then 0, not None.
    """
    is_unbilled = reported_s is None and started is None and status in TERMINAL_STATUSES
    return 0 if is_unbilled else reported_s


def _tuning(d: Mapping[str, Any]) -> dict[str, Any]:
    definition = d.get("TrainingJobDefinition") or (d.get("TrainingJobDefinitions") or [{}])[0]
    limits = d.get("HyperParameterTuningJobConfig", {}).get("ResourceLimits", {})
    objective = d.get("BestTrainingJob", {}).get("FinalHyperParameterTuningJobObjectiveMetric")
    return {
        "kind": "tuning",
        "name": d["HyperParameterTuningJobName"],
        "arn": d.get("HyperParameterTuningJobArn", ""),
        "status": d["HyperParameterTuningJobStatus"],
        "failure_reason": d.get("FailureReason") or None,
        **_cluster(definition.get("ResourceConfig", {})),
        "is_spot": bool(definition.get("EnableManagedSpotTraining", False)),
        "created_at": epoch(d.get("CreationTime")),
        "ended_at": epoch(d.get("HyperParameterTuningEndTime")),
        "modified_at": epoch(d.get("LastModifiedTime")),
        "max_run_s": limits.get("MaxRuntimeInSeconds"),
        "final_metrics": _finite_metrics([objective] if objective else []),
        "output_path": definition.get("OutputDataConfig", {}).get("S3OutputPath"),
        "checkpoint_s3_uri": definition.get("CheckpointConfig", {}).get("S3Uri"),
        "image_uri": definition.get("AlgorithmSpecification", {}).get("TrainingImage"),
    }


def _automl(d: Mapping[str, Any]) -> dict[str, Any]:
    config = d.get("AutoMLProblemTypeConfig", {}).get("TabularJobConfig", {})
    objective = d.get("BestCandidate", {}).get("FinalAutoMLJobObjectiveMetric")
    return {
        "kind": "automl",
        "name": d["AutoMLJobName"],
        "arn": d.get("AutoMLJobArn", ""),
        "status": d["AutoMLJobStatus"],
        "secondary_status": d.get("AutoMLJobSecondaryStatus"),
        "failure_reason": d.get("FailureReason") or None,
        "created_at": epoch(d.get("CreationTime")),
        "ended_at": epoch(d.get("EndTime")),
        "modified_at": epoch(d.get("LastModifiedTime")),
        "max_run_s": config.get("CompletionCriteria", {}).get("MaxAutoMLJobRuntimeInSeconds"),
        "final_metrics": _finite_metrics([objective] if objective else []),
        "output_path": d.get("OutputDataConfig", {}).get("S3OutputPath"),
    }


def _finite_metrics(found: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the values by name, without NaN and infinities, which JSON and Airflow's XCom cannot represent."""
    values = {str(each["MetricName"]): float(each["Value"]) for each in found}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _cluster(config: Mapping[str, Any]) -> dict[str, Any]:
    groups = config.get("InstanceGroups") or ()
    if groups:
        return {
            "instance_type": ", ".join(dict.fromkeys(group["InstanceType"] for group in groups)),
            "instance_count": sum(group["InstanceCount"] for group in groups),
            "instance_groups": tuple(
                {
                    "instance_group_name": group["InstanceGroupName"],
                    "instance_type": group["InstanceType"],
                    "instance_count": group["InstanceCount"],
                }
                for group in groups
            ),
        }
    return {
        "instance_type": config.get("SelectedInstanceType") or config.get("InstanceType"),
        "instance_count": config.get("SelectedInstanceCount") or config.get("InstanceCount") or 1,
    }


def _transition(each: Mapping[str, Any]) -> Transition:
    return Transition(
        status=each["Status"],
        start=epoch(each["StartTime"]) or 0.0,
        end=epoch(each.get("EndTime")),
        message=each.get("StatusMessage"),
    )
