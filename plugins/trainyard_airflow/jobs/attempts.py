"""Choice of a starting task's job: the running one, the finished one, or a new one. Pure.

The service is the ledger (ADR 0004). The attempts 1, 2, ... of a task have derived names, so describing them gives the
state of the task. Airflow's task state only adds which failure was reported already, so that an unreported failure is
raised before another attempt is paid.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from trainyard.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainyard.sagemaker_api.snapshot import JobSnapshot

_MOST_ATTEMPTS = 200


class NextAction(StrEnum):
    """Next step with a task's job."""

    SUBMIT = "submit"
    ATTACH = "attach"
    ADOPT = "adopt"
    REPORT = "report"
    AWAIT_END = "await end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """State of a task: the attempt to act on, its next action, and the earlier attempts."""

    step: NextAction
    attempt: int
    snapshot: JobSnapshot | None = None
    earlier: tuple[JobSnapshot, ...] = ()

    @property
    def last(self) -> JobSnapshot | None:
        """The newest job of the task, or None."""
        return self.snapshot or (self.earlier[-1] if self.earlier else None)


def find_standing(
    describe: Callable[[int], JobSnapshot | None],
    *,
    reported: int | None,
    hands_on: Callable[[JobSnapshot], bool] = lambda _: False,
) -> Standing:
    """Return the state of the task, by describing attempt 1, 2, ... up to the first that is not over.

    The task waits for a stopping job before it starts another, since two jobs must not write the same checkpoints.

    Args:
        describe: returns the job of an attempt, or None.
        reported: the last attempt whose failure was reported to Airflow; None if that is unknown. In that case no
            failure is reported again.
        hands_on: returns whether the result of a stopped job is the task's result.

    Raises:
        ContractError: the attempts do not end.
    """
    earlier: list[JobSnapshot] = []
    for attempt in range(1, _MOST_ATTEMPTS + 1):
        snapshot = describe(attempt)
        step = _step(
            snapshot,
            is_news=reported is not None and attempt > reported,
            hands_on=hands_on,
        )
        if step is not None:
            return Standing(step=step, attempt=attempt, snapshot=snapshot, earlier=tuple(earlier))
        assert snapshot is not None  # noqa: S101  # no job is a reason to submit
        earlier.append(snapshot)
    raise ContractError(f"more than {_MOST_ATTEMPTS} attempts of one task", got=earlier[-1].name)


def _step(
    snapshot: JobSnapshot | None, *, is_news: bool, hands_on: Callable[[JobSnapshot], bool]
) -> NextAction | None:
    """Return the next action on an attempt's job, or None if the attempt is over and the next one decides."""
    if snapshot is None:
        return NextAction.SUBMIT
    match snapshot.status:
        case "Completed":
            return NextAction.ADOPT
        case "Stopping":
            return NextAction.AWAIT_END
        case "Failed" if is_news:
            return NextAction.REPORT
        case "Stopped" if hands_on(snapshot):
            return NextAction.ADOPT
        case "Failed" | "Stopped":
            return None
        case _:
            return NextAction.ATTACH
