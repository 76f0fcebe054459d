"""One job as its runner uses it: request, folders, stores and changes of its state."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.channels.retrier import Retrier
from sagemaker_engine.jobs import life_cycle
from sagemaker_engine.jobs.logs import add_line_to_newest

if TYPE_CHECKING:
    from pathlib import Path

    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.state.jobs import ResourceKind
    from sagemaker_engine.state.settings import EngineSettings
    from sagemaker_engine.state.store import JobStore

log = logging.getLogger(__name__)


class JobError(Exception):
    """The job fails; the message, cut at 1024 characters, becomes its FailureReason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """One instance of the job: its name, group and type."""

    name: str
    group: str
    instance_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job and the stores that its runner uses."""

    kind: ResourceKind
    name: str
    arn: str
    request: dict[str, Any]
    settings: EngineSettings
    store: JobStore
    objects: ObjectStore
    folder: Path
    created_at: float

    def enter(self, secondary: str) -> None:
        """Change the stored state to a secondary status."""
        now = time.time()
        self.store.update_state(
            self.kind,
            self.name,
            lambda state: life_cycle.enter(self.kind, state, secondary, at=now),
        )

    def transitions(self) -> list[dict[str, Any]]:
        """Return the stored SecondaryStatusTransitions."""
        state = self.store.get(self.kind, self.name).state
        return list(state["SecondaryStatusTransitions"])

    def set_status_message(self, message: str) -> None:
        """Set the StatusMessage of the current secondary status. Processing jobs have none."""

        def change(state: dict[str, Any]) -> None:
            if state.get("SecondaryStatusTransitions"):
                state["SecondaryStatusTransitions"][-1]["StatusMessage"] = message

        self.store.update_state(self.kind, self.name, change)

    def change(self, **members: Any) -> None:
        """Set members of the stored state, by wire name."""
        self.store.update_state(self.kind, self.name, lambda state: state.update(members))

    def finish(
        self,
        status: str,
        *,
        secondary: str | None = None,
        reason: str | None = None,
        **members: Any,
    ) -> None:
        """Change the stored state to a final status, together with the given members, in one write.

        If the engine has already ended the job, its state does not change.
        """
        now = time.time()

        def change(state: dict[str, Any]) -> None:
            if not life_cycle.has_ended(self.kind, state):
                state.update(members)
            life_cycle.finish(
                self.kind,
                state,
                status=status,
                at=now,
                secondary=secondary,
                reason=reason,
                discount=self.settings.discount(self.request),
            )

        self.store.update_state(self.kind, self.name, change)

    def log_line(self, host: str, text: str) -> None:
        """Add a line of the engine to a host's log, even if the log is closed already."""
        log.warning("%s: %s", host, text)
        add_line_to_newest(self.folder / "logs", host, text)

    @property
    def retrier(self) -> Retrier:
        """Retry limits for S3 while a job's results are uploaded; a stop does not shorten them."""
        return Retrier(scale=min(1.0, self.settings.time_scale))

    def host_folder(self, host: str) -> Path:
        """Return the folder with one instance's files."""
        return self.folder / "instances" / host

    def ml_folder(self, host: str) -> Path:
        """Return the folder that the instance sees as /opt/ml."""
        return self.host_folder(host) / "ml"


def plan_hosts(resources: dict[str, Any], *, names: list[str] | None = None) -> list[HostPlan]:
    """Return the instances of a ResourceConfig or ClusterConfig, in the order of its groups.

    `names` replaces algo-1, algo-2, ... on machines that do not support host names. If the config has
    InstancePreferences, the first preference is used, because the engine has capacity for each of them.
    """
    preferred: dict[str, Any] = next(iter(resources.get("InstancePreferences") or ()), {})
    one = {"InstanceType": "local", "InstanceCount": 1, **resources, **preferred}
    groups = resources.get("InstanceGroups") or [
        {
            "InstanceGroupName": "homogeneousCluster",
            "InstanceType": one["InstanceType"],
            "InstanceCount": one["InstanceCount"],
        }
    ]
    flat = [group for group in groups for _ in range(group["InstanceCount"])]
    return [
        HostPlan(
            name=names[index] if names else f"algo-{index + 1}",
            group=group["InstanceGroupName"],
            instance_type=group["InstanceType"],
        )
        for index, group in enumerate(flat)
    ]
