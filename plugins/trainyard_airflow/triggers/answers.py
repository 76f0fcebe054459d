"""Counts of consecutive failed polls, which determine the pause before a retry and the end of all retries."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from trainyard.errors import RejectedRequestError
from trainyard_airflow.hooks.refusals import has_old_credentials, typed
from trainyard_airflow.triggers.pace import backoff_s, jittered

log = logging.getLogger(__name__)

TRANSIENT = (BotoCoreError, HTTPClientError, OSError, asyncio.TimeoutError)
FAULTS = (ClientError, *TRANSIENT)
"""Errors of a poll after which the job is polled again."""

_REFUSALS_IN_A_ROW = 5


@dataclass(slots=True)
class Answers:
    """Consecutive failed polls of one job.

    Attributes:
        where: place that an error names, such as `job a`.
        logs: whether this object logs the waits; False if its users log them.
    """

    where: str
    logs: bool = True
    _failures: int = 0
    _refusals: int = 0

    def answered(self) -> None:
        """Reset the counts of consecutive failed polls and of rejected calls, after a successful poll."""
        self._failures = self._refusals = 0

    def described(self) -> None:
        """Reset the count of rejected calls after a successful Describe.

        The job is described before each stop request, so rejected stop requests are never counted as consecutive.
        The stop is therefore retried without limit, even if the service rejects each request.
        """
        self._refusals = 0

    def delay_s(self, error: Exception) -> float:
        """Return the seconds to wait after a failed poll.

        Polls are repeated without limit if the service does not answer, throttles, fails, or rejects the
        credentials.

        Raises:
            TrainingRunError: the service rejected so many consecutive polls that a retry will not help.
        """
        self._failures += 1
        if isinstance(error, ClientError):
            self._refusals += is_refusal(error)
            if self._refusals >= _REFUSALS_IN_A_ROW:
                ours = typed(error, where=self.where)
                raise ours from error
        delay = jittered(backoff_s(self._failures))
        if self.logs:
            log.warning("%s; retry in %.0f s", _in_words(error), delay)
        return delay


def _in_words(error: Exception) -> str:
    if isinstance(error, ClientError) and is_refusal(error):
        refused = typed(error, where="")
        return f"{refused.what} ({refused.got}): {refused.next_step}"
    return f"No answer from the service ({error})"


def is_refusal(error: ClientError) -> bool:
    """Return whether the rejection is permanent; False for throttling, service errors and rejected credentials."""
    if has_old_credentials(error):
        return False
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    refused = typed(error, where="")
    return isinstance(refused, RejectedRequestError) and status < 500
