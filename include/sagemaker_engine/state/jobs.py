"""Jobs as stored values, and queries over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ResourceKind(StrEnum):
    """Kinds of job that the engine runs itself."""

    TRAINING = "training"
    PROCESSING = "processing"

    @property
    def wire_name(self) -> str:
        """Return the kind's name in operations and members, such as `TrainingJob`."""
        return f"{self.value.title()}Job"

    @property
    def status_key(self) -> str:
        """Return the wire name of the member with the job's status, such as `TrainingJobStatus`."""
        return f"{self.wire_name}Status"


RUNNING_STATUSES = frozenset({"InProgress", "Stopping"})
TERMINAL_STATUSES = frozenset({"Completed", "Failed", "Stopped"})


class JobNameTakenError(Exception):
    """A job with this kind and name exists."""


class UnknownJobError(Exception):
    """No job with this kind and name exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One job as stored. Times are epoch seconds; `state` and `request` use wire names."""

    kind: ResourceKind
    name: str
    arn: str
    request: dict[str, Any]
    state: dict[str, Any]
    tags: dict[str, str]
    created_at: float
    modified_at: float
    stop_requested_at: float | None
    runner_pid: int | None
    runner_start_ticks: int | None
    revision: int

    @property
    def status(self) -> str:
        """Return the job's status, such as `InProgress`."""
        return str(self.state[self.kind.status_key])

    @property
    def is_terminal(self) -> bool:
        """Return whether the job is Completed, Failed or Stopped."""
        return self.status in TERMINAL_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Filter and order of a job listing. A filter that is None or empty matches every job.

    `order_by` is a column: name, created_at or status. `after` is the position of the last job of the previous
    page: (its value in the `order_by` column, its name). Times are epoch seconds.
    """

    statuses: frozenset[str] = field(default_factory=frozenset)
    name_contains: str | None = None
    created_after: float | None = None
    created_before: float | None = None
    modified_after: float | None = None
    modified_before: float | None = None
    order_by: str = "created_at"
    descending: bool = False
    after: tuple[Any, str] | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        """Check the order.

        Raises:
            ValueError: `order_by` is not a sortable column.
        """
        if self.order_by not in {"name", "created_at", "status"}:
            raise ValueError(f"order_by is {self.order_by!r}; it may be name, created_at, status")
