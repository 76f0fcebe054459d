"""Candidates of an AutoML job, read from the service's responses, and their ranking."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from trainyard.cost.job_cost import job_cost, total_usd
from trainyard.job_status import TERMINAL_STATUSES
from trainyard.sagemaker_api.snapshot import epoch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.sagemaker_api.snapshot import JobSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoMLCandidate:
    """State of one candidate. Times are epoch seconds.

    Attributes:
        value: value of the objective; None until it is known.
        metrics: values by data set (`Train`, `Validation`, `Test`) and metric.
        containers: the inference containers in order, each with `image_uri`, `model_artifact` and `environment`.
        steps: the jobs that created it, each with `type`, `name` and `arn`.
        explainability_uri: report on the importance of the columns.
        insights_uri: report on the model's quality.
    """

    name: str
    status: str
    value: float | None = None
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    containers: tuple[Mapping[str, Any], ...] = ()
    steps: tuple[Mapping[str, str], ...] = ()
    explainability_uri: str | None = None
    insights_uri: str | None = None
    created_at: float | None = None
    ended_at: float | None = None
    failure_reason: str | None = None

    @property
    def is_terminal(self) -> bool:
        """True if the candidate has ended, with or without success."""
        return self.status in TERMINAL_STATUSES

    @property
    def model_artifact(self) -> str | None:
        """S3 URI of the last container's model; None before it exists. Earlier containers prepare the features."""
        return self.containers[-1]["model_artifact"] if self.containers else None

    @property
    def image_uri(self) -> str | None:
        """URI of the last container's image; None before it is known."""
        return self.containers[-1]["image_uri"] if self.containers else None

    def to_dict(self) -> dict[str, Any]:
        """Return the candidate as JSON-safe data."""
        derived = {"model_artifact": self.model_artifact, "image_uri": self.image_uri}
        return {**asdict(self), **derived}

    @classmethod
    def from_wire(cls, each: Mapping[str, Any]) -> Self:
        """Build the candidate from an AutoMLCandidate structure."""
        objective = each.get("FinalAutoMLJobObjectiveMetric")
        properties = each.get("CandidateProperties", {})
        places = properties.get("CandidateArtifactLocations", {})
        return cls(
            name=each["CandidateName"],
            status=each["CandidateStatus"],
            value=float(objective["Value"]) if objective else None,
            metrics=_metrics(properties.get("CandidateMetrics", ())),
            containers=tuple(_container(one) for one in each.get("InferenceContainers", ())),
            steps=tuple(
                {
                    "type": step["CandidateStepType"].rpartition("::")[2],
                    "name": step["CandidateStepName"],
                    "arn": step["CandidateStepArn"],
                }
                for step in each["CandidateSteps"]
            ),
            explainability_uri=places.get("Explainability"),
            insights_uri=places.get("ModelInsights"),
            created_at=epoch(each.get("CreationTime")),
            ended_at=epoch(each.get("EndTime")),
            failure_reason=each.get("FailureReason") or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoMLFacts:
    """Members of the Describe response that only AutoML jobs have.

    The members that AutoML jobs share with other kinds of jobs are in `JobSnapshot`.
    """

    problem_type: str | None
    metric_name: str | None
    maximize: bool
    best: AutoMLCandidate | None
    partial_failures: tuple[str, ...]

    @classmethod
    def from_describe(cls, d: Mapping[str, Any]) -> Self:
        """Build the facts from the response of DescribeAutoMLJobV2."""
        resolved = d.get("ResolvedAttributes", {})
        tabular = resolved.get("AutoMLProblemTypeResolvedAttributes", {}).get(
            "TabularResolvedAttributes", {}
        )
        best = d.get("BestCandidate")
        objective = (best or {}).get("FinalAutoMLJobObjectiveMetric", {})
        name = objective.get("MetricName") or resolved.get("AutoMLJobObjective", {}).get(
            "MetricName"
        )
        given = d.get("AutoMLProblemTypeConfig", {}).get("TabularJobConfig", {}).get("ProblemType")
        return cls(
            problem_type=tabular.get("ProblemType") or given,
            metric_name=name,
            maximize=objective.get("Type", "Maximize") == "Maximize",
            best=AutoMLCandidate.from_wire(best) if best else None,
            partial_failures=tuple(
                each["PartialFailureMessage"] for each in d.get("PartialFailureReasons", ())
            ),
        )


def with_bill(automl: JobSnapshot, jobs: Sequence[JobSnapshot]) -> JobSnapshot:
    """Return the snapshot of an ended AutoML job with the billed instance-seconds and the cost of all its jobs.

    The snapshot has the instance type that all these jobs share; None if the types differ.
    """
    types = {each.instance_type for each in jobs}
    usd, is_known = total_usd(job_cost(each.to_dict()) for each in jobs)
    return replace(
        automl,
        billable_seconds=sum((each.billable_seconds or 0) * each.instance_count for each in jobs),
        children_usd=usd if is_known else None,
        instance_type=types.pop() if len(types) == 1 else None,
        instance_count=1,
    )


def ranked(candidates: Sequence[AutoMLCandidate], *, maximize: bool) -> list[AutoMLCandidate]:
    """Return the candidates, the best first. Candidates without an objective come last, by name."""
    sign = -1 if maximize else 1
    judged = sorted(
        (each for each in candidates if each.value is not None),
        key=lambda each: (sign * (each.value or 0.0), each.name),
    )
    rest = sorted((each for each in candidates if each.value is None), key=lambda each: each.name)
    return [*judged, *rest]


def leaderboard(
    candidates: Sequence[AutoMLCandidate], *, metric: str | None, maximize: bool
) -> str:
    """Return one line per candidate with name, status, objective and seconds; the best is first and marked."""
    order = ranked(candidates, maximize=maximize)
    head = ["", "candidate", "status", metric or "objective", "seconds"]
    rows = [
        [
            "*" if place == 0 and each.value is not None else "",
            each.name,
            each.status,
            "" if each.value is None else f"{each.value:.6g}",
            _seconds(each),
        ]
        for place, each in enumerate(order)
    ]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    return "\n".join(
        " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [head, *rows]
    )


def _seconds(each: AutoMLCandidate) -> str:
    if each.created_at is None or each.ended_at is None:
        return ""
    return f"{each.ended_at - each.created_at:.0f}"


def _metrics(data: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for each in data:
        name = each.get("StandardMetricName") or each["MetricName"]
        found.setdefault(each.get("Set", "Validation"), {})[name] = float(each["Value"])
    return found


def _container(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "image_uri": one["Image"],
        "model_artifact": one["ModelDataUrl"],
        "environment": dict(one.get("Environment", {})),
    }
