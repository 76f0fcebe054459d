"""Choice of the job that a starting task takes on: its running one, its finished one, or a new one. Pure.

The service is the ledger (ADR 0004): attempt 1, 2, ... of a task have derived names, and a look at
each says where the task stands. What Airflow's task state adds is only which failure has been
reported already, so that a failure nobody saw is reported instead of being paid for again.
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
    """Standing of a task: the attempt to act on, the next step, and the attempts before it."""

    step: NextAction
    attempt: int
    snapshot: JobSnapshot | None = None
    earlier: tuple[JobSnapshot, ...] = ()

    @property
    def last(self) -> JobSnapshot | None:
        """The newest job of the task; None when it never had one."""
        return self.snapshot or (self.earlier[-1] if self.earlier else None)


def find_standing(
    describe: Callable[[int], JobSnapshot | None],
    *,
    reported: int | None,
    hands_on: Callable[[JobSnapshot], bool] = lambda _: False,
) -> Standing:
    """Return where the task stands, asking for attempt 1, 2, ... until one is not over.

    A stopping job is waited for before another starts: two jobs must not write the same
    checkpoints.

    Args:
        describe: returns the job of an attempt, None when there is none.
        reported: the last attempt whose failure Airflow has seen; None when that is not known, and
            then no failure is reported twice.
        hands_on: whether a stopped job's result so far is the task's result.

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
    """Return what to do with an attempt's job; None when it is over and the next attempt is to be looked at."""
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
