"""`EndPolicy`: reaction of a task to jobs that did not complete. This base policy raises their errors."""

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
    """Base policy: each end other than `Completed` is an error, and the next attempt has the same request."""

    def standing(self, standing: Standing) -> Standing:
        """Return the task's state as modified by the policy; unchanged in this base policy."""
        return standing

    def change(self, request: dict[str, Any], *, name: str) -> dict[str, Any]:  # noqa: ARG002
        """Change the Create request of the job `name` in place; return facts about the change for the job's result.

        This base policy changes nothing and returns an empty dict.
        """
        return {}

    def hands_on(self, snapshot: JobSnapshot) -> bool:  # noqa: ARG002
        """Return whether a stopped job is the task's result."""
        return False

    def ended(self, snapshot: JobSnapshot, result: Mapping[str, Any]) -> Step | Again | None:  # noqa: ARG002
        """Return the step after a job's end, or None if the policy does not decide it.

        `Again` starts the task's next attempt. This base policy returns None.
        """
        return None

    def failed(
        self,
        snapshot: JobSnapshot,  # noqa: ARG002
        result: Mapping[str, Any],  # noqa: ARG002
        error: TrainingRunError,
    ) -> Step:
        """Return the task's next step after a job that failed. This base policy always raises `error` instead.

        Raises:
            TrainingRunError: the job's error.
        """
        raise error

    def answered(
        self,
        chosen: RetryRemedy,
        by: str,
        result: Mapping[str, Any],
        verdict: Mapping[str, Any],  # noqa: ARG002
    ) -> Step | Again:
        """Return the step after a person's answer about a stopped job.

        Raises:
            ContractError: always: this policy asks no questions.
        """
        raise ContractError(
            "a person answered a question about the task's stopped job, but the task now asks no questions",
            where=f"job {result.get('job_name')}",
            got=f"the answer '{chosen}' from {by}",
            next_step="clear the task to start its next attempt; while a question is open, do not change "
            "the task's rules",
        )
