"""Notifications of a run by SNS, and its monitoring in CloudWatch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from trainyard.errors import Finding, SpecError

TOPIC_ARN = r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?"


class Occasion(StrEnum):
    """Event in a run that sends a notification."""

    SPOT = "spot"
    """Spot capacity was interrupted; the job resumes from its last checkpoint."""
    RULE = "rule"
    """A rule found an issue in the training."""
    FAILURE = "failure"
    """A task failed, and with it the run."""
    BUDGET = "budget"
    """The run was not started or not continued because of its budget, or its cost cap stopped the training."""
    APPROVAL = "approval"
    """The run waits for a person's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifications:
    """An SNS topic, and the occasions on which a run sends a message to it.

    Attributes:
        on: the occasions; by default all of them.
    """

    topic_arn: str
    on: tuple[Occasion, ...] = tuple(Occasion)

    def __post_init__(self) -> None:
        """Check the form of the topic's ARN, and that at least one occasion is in `on`.

        Raises:
            SpecError: `topic_arn` is not the ARN of an SNS topic, or `on` is empty.
        """
        findings = []
        if not re.fullmatch(TOPIC_ARN, self.topic_arn):
            allowed = "such as arn:aws:sns:eu-west-1:111122223333:training"
            findings.append(
                Finding(
                    where="topic_arn",
                    what="is not the ARN of an SNS topic",
                    got=self.topic_arn,
                    allowed=allowed,
                )
            )
        if not self.on:
            allowed = ", ".join(Occasion)
            findings.append(Finding(where="on", what="is empty", got="[]", allowed=allowed))
        if findings:
            raise SpecError(findings, subject="notifications")

    @property
    def region(self) -> str:
        """The topic's region; messages can be published only from there."""
        return self.topic_arn.split(":")[3]


class Dashboard(StrEnum):
    """Lifetime of a run's CloudWatch dashboard."""

    NONE = "none"
    RUN = "run"
    """Removed when the training has ended."""
    KEEP = "keep"
    """Kept until it is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring:
    """CloudWatch alarms and dashboard of a run's training. Both cost money on AWS.

    Attributes:
        alarms: whether to set alarms on idle CPUs, idle GPUs, full memory and full disks during the training.
    """

    alarms: bool = False
    dashboard: Dashboard = Dashboard.NONE

    @property
    def is_on(self) -> bool:
        """True if there is anything to set up."""
        return self.alarms or self.dashboard is not Dashboard.NONE
