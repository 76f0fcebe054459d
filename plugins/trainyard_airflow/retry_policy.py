"""Airflow's retry decision, read from `trainyard.retry_table`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy

from trainyard.retry_table import retry_rule

if TYPE_CHECKING:
    from airflow.sdk import Context


class TrainingRetryPolicy(RetryPolicy):
    """Retries a task by the class of its error; never beyond the task's own `retries`.

    An error that is not ours (a lost worker, a bug in a library) is left to Airflow's standard
    retry.
    """

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,  # noqa: ARG002
        context: Context | None = None,  # noqa: ARG002
    ) -> RetryDecision:
        """Return whether to retry after the error of try `try_number`, and after which delay."""
        rule = retry_rule(exception)
        if rule is None:
            return RetryDecision.default()
        reason = f"{type(exception).__name__}: {rule.reason}"
        if not rule.retry:
            return RetryDecision.fail(reason)
        return RetryDecision.retry(timedelta(seconds=rule.delay_for(try_number)), reason)
