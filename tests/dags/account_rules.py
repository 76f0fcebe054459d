"""Policies without one action, and the text of a run, for the proofs of `trainyard permissions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

OF_OTHER_LIVES = {
    "s3:AbortMultipartUpload",
    "sagemaker:ListTags",
    "sagemaker:StopProcessingJob",
    "sagemaker:StopTrainingJob",
    "sagemaker:UpdateModelPackage",
}
"""Granted for runs that are stopped, retried or cut off, and for models without a serving image."""
DONE_WITHOUT = {
    "ecr:BatchGetImage",
    "iam:GetRole",
    "s3:DeleteObject",
    "s3:GetEncryptionConfiguration",
    "servicequotas:ListServiceQuotas",
    "logs:DescribeLogStreams",
    "logs:FilterLogEvents",
    "logs:GetLogEvents",
    "sagemaker:ListProcessingJobs",
    "sagemaker:ListTrainingJobs",
}
"""Without them a run succeeds with a warning, less of the log, or temporary files that stay in S3."""


def actions_of(policy: dict[str, Any]) -> set[str]:
    """Return all actions that a policy allows."""
    return {action for each in policy["Statement"] for action in each["Action"]}


def without(action: str, policy: dict[str, Any]) -> dict[str, Any]:
    """Return a policy that does not allow the action."""
    statements = [
        {**each, "Action": [other for other in each["Action"] if other != action]}
        for each in policy["Statement"]
    ]
    return {**policy, "Statement": [each for each in statements if each["Action"]]}


def printed(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> str:
    """Return the log and the output of the run so far."""
    return caplog.text + "".join(capfd.readouterr())


def states_of(dag_run: Any) -> dict[str, str]:
    """Return the states of a run's tasks."""
    return {each.task_id: str(each.state) for each in dag_run.get_task_instances()}
