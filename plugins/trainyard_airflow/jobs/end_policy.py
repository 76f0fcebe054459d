"""`EndPolicy`: what a task makes of a job that did not simply complete. This one adds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.errors import TrainingRunError
    from trainyard.rules.rule_retry import RetryRemedy
    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.jobs.attempts import Standing
    from trainyard_airflow.jobs.steps import Again, Step


class EndPolicy:
    """Every end but `Completed` is an error, and the next attempt is like the one before."""

    def standing(self, standing: Standing) -> Standing:
        """Return where the task stands, as the policy sees it."""
        return standing

    def change(self, request: dict[str, Any], *, name: str) -> dict[str, Any]:  # noqa: ARG002
        """Change the Create request of the job `name` in place; return facts about the change."""
        return {}

    def hands_on(self, snapshot: JobSnapshot) -> bool:  # noqa: ARG002
        """Return whether a stopped job is the task's result."""
        return False

    def ended(self, snapshot: JobSnapshot, result: Mapping[str, Any]) -> Step | Again | None:  # noqa: ARG002
        """Return what follows a job's end; None if that is the kind's own business."""
        return None

    def failed(
        self,
        snapshot: JobSnapshot,  # noqa: ARG002
        result: Mapping[str, Any],  # noqa: ARG002
        error: TrainingRunError,
    ) -> Step:
        """Return what follows a job that failed with an error.

        Raises:
            TrainingRunError: the error as it is; this policy has nothing else.
        """
        raise error

    def answered(
        self,
        chosen: RetryRemedy,
        by: str,
        result: Mapping[str, Any],  # noqa: ARG002
        verdict: Mapping[str, Any],  # noqa: ARG002
    ) -> Step | Again:
        """Return what follows a person's answer.

        Raises:
            ContractError: this policy asks nobody.
        """
        raise ContractError("an answer to no question", got=f"{chosen} by {by}")
