"""Table of errors that are retried: which class, after which delay, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.errors import (
    BudgetExceededError,
    CapacityError,
    ContractError,
    DataError,
    DeviceMemoryError,
    ExpiredCredentialsError,
    HungJobError,
    InfrastructureError,
    JobFailedError,
    JobStoppedError,
    PlanError,
    QuotaExceededError,
    RejectedRequestError,
    ResumableTimeLimitError,
    RuleViolatedError,
    ScriptError,
    SpecError,
    SpotInterruptionError,
    ThrottledError,
    TimeLimitError,
    TrainingRunError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRule:
    """Retry decision for an error: whether to retry, after which delay, and why.

    Attributes:
        delay_s: seconds before the first retry.
        backoff: factor on the delay for each further retry; 1.0 keeps it constant.
        max_delay_s: ceiling of one delay.
    """

    retry: bool
    reason: str
    delay_s: float = 0.0
    backoff: float = 1.0
    max_delay_s: float = 3600.0

    def delay_for(self, attempt: int) -> float:
        """Return the seconds to wait after a failed attempt. `attempt` is its number, from 1."""
        return min(self.max_delay_s, self.delay_s * self.backoff ** max(0, attempt - 1))


RETRY_TABLE: Mapping[type[TrainingRunError], RetryRule] = {
    SpecError: RetryRule(retry=False, reason="the same spec would be rejected again"),
    PlanError: RetryRule(retry=False, reason="the same plan would not fit again"),
    RejectedRequestError: RetryRule(retry=False, reason="the same request would be rejected again"),
    ExpiredCredentialsError: RetryRule(
        retry=True,
        reason="the connection may have new credentials",
        delay_s=30,
        backoff=2.0,
        max_delay_s=300,
    ),
    QuotaExceededError: RetryRule(
        retry=True, reason="quota becomes available when other jobs end", delay_s=300, backoff=2.0
    ),
    CapacityError: RetryRule(
        retry=True, reason="capacity may be available later", delay_s=300, backoff=2.0
    ),
    ThrottledError: RetryRule(
        retry=True,
        reason="the service limits the rate of calls",
        delay_s=15,
        backoff=2.0,
        max_delay_s=300,
    ),
    ScriptError: RetryRule(retry=False, reason="the same code would raise again"),
    DeviceMemoryError: RetryRule(retry=False, reason="the same batch would not fit again"),
    DataError: RetryRule(retry=False, reason="the same data would be unreadable again"),
    SpotInterruptionError: RetryRule(
        retry=True, reason="a new attempt resumes from the last checkpoint", delay_s=60, backoff=2.0
    ),
    InfrastructureError: RetryRule(
        retry=True,
        reason="another machine resumes from the last checkpoint",
        delay_s=30,
        backoff=2.0,
    ),
    HungJobError: RetryRule(
        retry=True,
        reason="other machines resume from the last checkpoint",
        delay_s=10,
        backoff=2.0,
    ),
    TimeLimitError: RetryRule(
        retry=False, reason="without a checkpoint, the same limit would end it again"
    ),
    ResumableTimeLimitError: RetryRule(
        retry=True,
        reason="a new attempt resumes from the checkpoints that this one wrote",
        delay_s=10,
    ),
    JobStoppedError: RetryRule(retry=False, reason="the stop was requested"),
    JobFailedError: RetryRule(retry=False, reason="the cause is unknown"),
    RuleViolatedError: RetryRule(
        retry=False, reason="the same training would break the rule again"
    ),
    BudgetExceededError: RetryRule(retry=False, reason="a retry costs more, not less"),
    ContractError: RetryRule(retry=False, reason="a bug needs a fix"),
    TrainingRunError: RetryRule(retry=False, reason="the cause is unknown"),
}


def retry_rule(error: BaseException | type[BaseException]) -> RetryRule | None:
    """Return the rule of the error's class or its nearest base class in the table; None if the table has neither."""
    kind = error if isinstance(error, type) else type(error)
    return next((RETRY_TABLE[base] for base in kind.__mro__ if base in RETRY_TABLE), None)
