"""Decision of a starting task: follow its running job, return the result of its ended job, or create a job.

The module also checks that a job that was found by its name belongs to the task.

SageMaker has the record of the task's jobs (ADR 0004). The names of the attempts 1, 2, ... are derived from
the task, so Describe calls return the task's state. One fact is missing in SageMaker and is read from
Airflow's task state store: the last attempt whose failure was reported to Airflow. A failure that was not
yet reported is raised before another attempt is paid for.

A job's name is derived from deployment, DAG, run and task. Two deployments without a name give their jobs
the same name if the ids of DAG, run and task are the same. Only the output prefixes then show to which
deployment a job belongs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from trainyard.errors import ContractError, RejectedRequestError
from trainyard.job_status import JobStatus
from trainyard.runs.run_tags import DEPLOYMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from trainyard.sagemaker_api.snapshot import JobSnapshot

_MOST_ATTEMPTS = 200


class NextAction(StrEnum):
    """Next action on a task's job."""

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
    """Return the state of the task.

    The jobs of attempts 1, 2, ... are described one by one, until an attempt's job, or the lack of a job,
    decides the next action.

    If a job is being stopped, the task waits for its end before the task starts another job. Otherwise, two
    jobs could write the same checkpoints.

    Args:
        describe: returns the job of an attempt, or None.
        reported: the last attempt whose failure was reported to Airflow. None if that is unknown:
            all failures then count as reported.
        hands_on: returns whether the result of a stopped job is the task's result.

    Raises:
        ContractError: the task has used 200 attempts, the maximum.
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
    raise ContractError(
        f"the task has used {_MOST_ATTEMPTS} attempts, which is the limit",
        where=f"job {earlier[-1].name}",
        next_step="start a new run",
    )


def _step(
    snapshot: JobSnapshot | None, *, is_news: bool, hands_on: Callable[[JobSnapshot], bool]
) -> NextAction | None:
    """Return the next action on an attempt's job.

    Return None if the attempt is over; the caller then looks at the job of the next attempt.

    Args:
        snapshot: the attempt's job; None if it does not exist.
        is_news: whether a failure of this attempt was not yet reported to Airflow.
        hands_on: returns whether the result of a stopped job is the task's result.
    """
    if snapshot is None:
        return NextAction.SUBMIT
    match snapshot.status:
        case JobStatus.COMPLETED:
            return NextAction.ADOPT
        case JobStatus.STOPPING:
            return NextAction.AWAIT_END
        case JobStatus.FAILED if is_news:
            return NextAction.REPORT
        case JobStatus.STOPPED if hands_on(snapshot):
            return NextAction.ADOPT
        case JobStatus.FAILED | JobStatus.STOPPED:
            return None
        case _:
            return NextAction.ATTACH


def check_own_job(
    snapshot: JobSnapshot,
    *,
    destinations: Iterable[str],
    tags: Mapping[str, str],
    deployment: str | None,
) -> None:
    """Check that a job belongs to this deployment and writes to a prefix of the task's job.

    Args:
        snapshot: the job found by its name.
        destinations: the `s3://` prefixes of the task's job; if empty, they are not checked.
        tags: tags of the job; without a deployment tag, only the destinations are checked.
        deployment: name of this deployment, or None.

    Raises:
        RejectedRequestError: the job belongs to another deployment, or writes to none of the prefixes.
    """
    owner = tags.get(DEPLOYMENT)
    if owner is not None and owner != deployment:
        raise RejectedRequestError(
            "the job of this name belongs to another deployment",
            operation=f"Create a {snapshot.kind} job",
            code="ResourceInUse",
            where=f"job {snapshot.name}, tag {DEPLOYMENT}",
            got=owner,
            allowed=deployment or "a job without the tag",
            next_step="give this Airflow a unique name in trainyard.deployment of the connection's extra",
        )
    own = {uri.rstrip("/") for uri in destinations}
    found = {uri.rstrip("/") for uri in (snapshot.output_path, *snapshot.outputs.values()) if uri}
    if own and found and own.isdisjoint(found):
        raise RejectedRequestError(
            "the job's name is taken by a job with another output path",
            operation=f"Create a {snapshot.kind} job",
            code="ResourceInUse",
            where=f"job {snapshot.name}",
            got=", ".join(sorted(found)),
            allowed=", ".join(sorted(own)),
            next_step="if this task's output path was changed, restore it; if the job belongs to another deployment, "
            "change the DAG id or the run id",
        )
