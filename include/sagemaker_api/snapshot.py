"""One job at one moment, read from a Describe answer: frozen, JSON-safe, the same for both kinds of job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

TERMINAL = frozenset({"Completed", "Failed", "Stopped"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One secondary status: when it began and ended (epoch seconds; end None while it lasts)."""

    status: str
    start: float
    end: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """What Describe said about a training or processing job. Times are epoch seconds, durations seconds.

    Attributes:
        kind: `training` or `processing`.
        status: InProgress, Completed, Failed, Stopping, Stopped. Only Completed is success.
        secondary_status: the finer state; None for a processing job.
        billable_seconds: per instance, as the service bills it; None until it says so.
        final_metrics: last value of each metric definition.
        model_artifact: S3 URI of model.tar.gz.
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
    is_spot: bool = False
    created_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    training_seconds: int | None = None
    billable_seconds: int | None = None
    final_metrics: Mapping[str, float] = ()  # type: ignore[assignment]
    model_artifact: str | None = None
    output_path: str | None = None
    checkpoint_s3_uri: str | None = None
    transitions: tuple[Transition, ...] = ()

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended, in whatever way."""
        return self.status in TERMINAL

    @property
    def succeeded(self) -> bool:
        """Whether the job completed. Stopped is not success."""
        return self.status == "Completed"

    @property
    def interruptions(self) -> int:
        """How often spot capacity was taken away."""
        return sum(t.status == "Interrupted" for t in self.transitions)

    @classmethod
    def from_describe(cls, description: Mapping[str, Any]) -> Self:
        """Return the snapshot of a DescribeTrainingJob or DescribeProcessingJob answer."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the snapshot as JSON-safe data, with is_terminal, succeeded and interruptions."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the snapshot that `to_dict` wrote."""
        raise NotImplementedError


TrainingJobSnapshot = JobSnapshot
