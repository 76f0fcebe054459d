"""One job as its runner sees it: what was asked, where its things lie, how its state moves on."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sagemaker_engine.channels.listing import Host
from sagemaker_engine.channels.retrier import Retrier
from sagemaker_engine.jobs import life_cycle
from sagemaker_engine.jobs.logs import say_in_newest

if TYPE_CHECKING:
    from pathlib import Path

    from sagemaker_engine.s3.object_store import ObjectStore
    from sagemaker_engine.state.settings import EngineSettings
    from sagemaker_engine.state.store import JobStore, ResourceKind

log = logging.getLogger(__name__)


class JobError(Exception):
    """The job cannot go on; the message becomes its FailureReason as it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """One instance of the job: its name, group and type."""

    name: str
    group: str
    instance_type: str

    @property
    def as_channel_host(self) -> Host:
        """Return the instance as channels see it."""
        return Host(name=self.name, group=self.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job and the stores that its runner works on."""

    kind: ResourceKind
    name: str
    arn: str
    request: dict[str, Any]
    settings: EngineSettings
    store: JobStore
    objects: ObjectStore
    folder: Path
    created_at: float
    started_at: float = field(default_factory=time.time)

    def enter(self, secondary: str) -> None:
        """Move the stored state to a secondary status."""
        now = time.time()
        self.store.update_state(
            self.kind,
            self.name,
            lambda state: life_cycle.enter(self.kind, state, secondary, at=now),
        )

    def transitions(self) -> list[dict[str, Any]]:
        """Return SecondaryStatusTransitions as stored now."""
        state = self.store.get(self.kind, self.name).state
        return list(state["SecondaryStatusTransitions"])

    def tell(self, message: str) -> None:
        """Set the StatusMessage of the secondary status that the job is in; a processing job has none."""

        def change(state: dict[str, Any]) -> None:
            if state.get("SecondaryStatusTransitions"):
                state["SecondaryStatusTransitions"][-1]["StatusMessage"] = message

        self.store.update_state(self.kind, self.name, change)

    def change(self, **members: Any) -> None:
        """Set members of the stored state, under their wire names."""
        self.store.update_state(self.kind, self.name, lambda state: state.update(members))

    def finish(
        self,
        status: str,
        *,
        secondary: str | None = None,
        reason: str | None = None,
        **members: Any,
    ) -> None:
        """Move the stored state to its end, in one write with the members given.

        A job that has ended already, by the engine's word, stays as it ended.
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

    def say(self, host: str, text: str) -> None:
        """Write into a host's log what the engine met; the log may be closed already."""
        log.warning("%s: %s", host, text)
        say_in_newest(self.folder / "logs", host, text)

    @property
    def retrier(self) -> Retrier:
        """Retry time for S3 while a job's results are uploaded; a stop does not shorten it."""
        return Retrier(scale=min(1.0, self.settings.time_scale))

    def host_folder(self, host: str) -> Path:
        """Return the folder that holds one instance's files."""
        return self.folder / "instances" / host

    def ml_folder(self, host: str) -> Path:
        """Return the folder that the instance sees as /opt/ml."""
        return self.host_folder(host) / "ml"


def plan_hosts(resources: dict[str, Any], *, names: list[str] | None = None) -> list[HostPlan]:
    """Return the instances of a ResourceConfig (or ClusterConfig), group after group.

    `names` replaces algo-1, algo-2, ... on machines where host names cannot be made. Of InstancePreferences, the first
    is taken: there is capacity for all of them here.
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
