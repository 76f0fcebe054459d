"""Counts how often in a row a service gave no answer: how long to wait, and when asking again is in vain."""

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
"""What ends a look at a job, but not the following of it."""

_REFUSALS_IN_A_ROW = 5


@dataclass(slots=True)
class Answers:
    """Looks in a row that failed; one for each job that is followed.

    Attributes:
        where: what an error says that it happened to: `job a`.
        logs: whether waits are logged here; not where all that wait log them.
    """

    where: str
    logs: bool = True
    _failures: int = 0
    _refusals: int = 0

    def answered(self) -> None:
        """Reset the counts of consecutive failures and refusals after an answer."""
        self._failures = self._refusals = 0

    def delay_s(self, error: Exception) -> float:
        """Return the seconds to wait after a look that failed.

        A service that does not answer, throttles, fails or takes the credentials for expired is asked for ever.

        Raises:
            TrainingRunError: the service refused, so many times in a row that asking again will not help.
        """
        self._failures += 1
        if isinstance(error, ClientError):
            self._refusals += is_refusal(error)
            if self._refusals >= _REFUSALS_IN_A_ROW:
                ours = typed(error, where=self.where)
                raise ours from error
        delay = jittered(backoff_s(self._failures))
        if self.logs:
            log.warning("No answer from the service (%s); asking again in %.0f s", error, delay)
        return delay


def is_refusal(error: ClientError) -> bool:
    """Return whether asking again will not help: not refused for load, a fault of the service or old credentials."""
    if has_old_credentials(error):
        return False
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    refused = typed(error, where="")
    return isinstance(refused, RejectedRequestError) and status < 500
