"""Schedule of one chaos run's faults (kind, moment, severity), drawn from a seed. Pure.

The same seed gives the same schedule on every machine. A moment is a step of the training or the start of a task, never
a time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TASKS = (TaskId.SHARD, TaskId.TRAIN, TaskId.EVALUATE, TaskId.REGISTER, TaskId.REPORT)
"""Tasks that may have a strike, in the order in which they run."""
EARLIEST, LATEST = 0.08, 0.92
"""Fractions of the training's steps between which strikes are scheduled, because the run must recover from the last.
Slow uplinks come earlier."""


class StrikeKind(StrEnum):
    """Kinds of strikes; a strike is one fault of the schedule."""

    INTERRUPTION = "spot interruption without notice"
    NOTICED_INTERRUPTION = "spot interruption with notice"
    KILLED_RANK = "a rank killed"
    HUNG_HOST = "a host that hangs"
    S3_ERRORS = "S3 answers 500"
    S3_STALLS = "S3 stalls"
    S3_HALVES = "S3 sends half an object"
    THROTTLING = "SageMaker throttles"
    SLOW_UPLINK = "slow uplinks"
    ENGINE = "engine killed"
    SCHEDULER = "scheduler killed"
    TRIGGERER = "triggerer killed"
    DAG_PROCESSOR = "dag-processor killed"
    API_SERVER = "api-server killed"
    WORKER = "worker killed"


INTERRUPTIONS = (StrikeKind.INTERRUPTION, StrikeKind.NOTICED_INTERRUPTION)
ATTEMPT_ENDS = (StrikeKind.KILLED_RANK, StrikeKind.HUNG_HOST)
"""Kinds that end a job, so the task pays for another attempt; at most one per run, since retries are limited."""
SERVICES = (StrikeKind.S3_ERRORS, StrikeKind.S3_STALLS, StrikeKind.S3_HALVES, StrikeKind.THROTTLING)
SLOWEST_UPLINK, FASTEST_UPLINK = 0.2, 1.5
"""Megabytes per second per host. The upload of a checkpoint of the chaos run, 2 MB, takes one or more intervals."""
PROCESSES = (
    StrikeKind.ENGINE,
    StrikeKind.SCHEDULER,
    StrikeKind.TRIGGERER,
    StrikeKind.DAG_PROCESSOR,
    StrikeKind.API_SERVER,
    StrikeKind.WORKER,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StrikeMoment:
    """A point in a run's progress: step `step` of the training, or the start of the task if `step` is None."""

    task: str
    step: int | None = None

    @property
    def position(self) -> tuple[int, int]:
        """Position of the moment in the run, for sorting."""
        return TASKS.index(self.task), -1 if self.step is None else self.step

    def __str__(self) -> str:
        """Return the moment as text: `at step 143`, `as shard starts`."""
        return f"as {self.task} starts" if self.step is None else f"at step {self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault of the schedule.

    Attributes:
        number: position in the schedule, from 1.
        host: the host on which a rank is killed, or which hangs.
        notice_s: seconds between an interruption's SIGTERM and the end of the hosts.
        count: number of requests that a fault of S3 or SageMaker affects.
        stall_s: seconds for which a stalled request waits.
        operation: the throttled SageMaker operation.
        megabytes_per_s: a host's bandwidth to S3 after the strike.
    """

    number: int
    kind: StrikeKind
    moment: StrikeMoment
    host: str | None = None
    notice_s: float = 0.0
    count: int = 1
    stall_s: float = 0.0
    operation: str | None = None
    megabytes_per_s: float | None = None

    def __str__(self) -> str:
        """Return the strike as text: `2. a rank killed (algo-2), at step 143`."""
        bandwidth = self.megabytes_per_s and f"{self.megabytes_per_s} MB/s a host"
        detail = self.host or self.operation or bandwidth
        return f"{self.number}. {self.kind}{f' ({detail})' if detail else ''}, {self.moment}"


def draw(seed: int, *, max_steps: int) -> tuple[Strike, ...]:
    """Return the strikes (scheduled faults) of a seed in order: six to eight, with at least one interruption.

    One strike slows the hosts' uplinks. It begins at a step of the training before `EARLIEST` * `max_steps`,
    and lasts to the end of the run. Every other strike happens either at a step of the training or at the start
    of a task.

    The strikes at steps, without the one on the uplinks, are spread so that the run has time to recover between
    two of them. The range of steps from `EARLIEST` * `max_steps` to `LATEST` * `max_steps` is divided into as
    many equal parts as there are such strikes, and each part gets one strike. Each task other than the training
    has at most one strike, because a task has few retries.

    Args:
        seed: any integer.
        max_steps: steps of the training; at least 50.
    """
    draws = random.Random(seed)  # noqa: S311  # a schedule, not a secret
    kinds = _kinds(draws)
    draws.shuffle(kinds)
    placed = zip(kinds, _moments(draws, kinds, max_steps), strict=True)
    in_order = sorted(placed, key=lambda pair: pair[1].position)
    others = [
        _strike(draws, number=number, kind=kind, moment=moment)
        for number, (kind, moment) in enumerate(in_order, 1)
    ]
    strikes = sorted([*others, _uplink(seed, max_steps)], key=lambda each: each.moment.position)
    return tuple(replace(each, number=number) for number, each in enumerate(strikes, 1))


def _uplink(seed: int, max_steps: int) -> Strike:
    """Return the scheduled fault (strike) that slows the training hosts' uplinks to S3.

    It is drawn from its own random generator. The other faults of a seed are therefore the same with
    and without it.
    """
    draws = random.Random(f"uplink {seed}")  # noqa: S311  # as above
    step = draws.randint(1, max(1, int(EARLIEST * max_steps) - 1))
    bandwidth = round(draws.uniform(SLOWEST_UPLINK, FASTEST_UPLINK), 2)
    return Strike(
        number=0,
        kind=StrikeKind.SLOW_UPLINK,
        moment=StrikeMoment(task=TaskId.TRAIN, step=step),
        megabytes_per_s=bandwidth,
    )


def _kinds(draws: random.Random) -> list[StrikeKind]:
    first = draws.choice(INTERRUPTIONS)
    second = draws.choice((*INTERRUPTIONS, *ATTEMPT_ENDS, *ATTEMPT_ENDS))
    services = draws.sample(SERVICES, draws.randint(1, 2))
    return [first, second, *services, *draws.sample(PROCESSES, draws.randint(2, 3))]


def _moments(
    draws: random.Random, kinds: Sequence[StrikeKind], max_steps: int
) -> Iterator[StrikeMoment]:
    """Yield a moment for each kind, in the kinds' order."""
    free: list[str] = [task for task in TASKS if task != TaskId.TRAIN]
    tasks: list[str | None] = []
    for kind in kinds:
        wanted = _task(draws, kind, free)
        if wanted in free:
            free.remove(wanted)
        tasks.append(wanted)
    parts = draws.sample(range(tasks.count(None)), tasks.count(None))
    for task in tasks:
        if task is not None:
            yield StrikeMoment(task=task)
        else:
            yield StrikeMoment(
                task=TaskId.TRAIN, step=_step(draws, parts.pop(), tasks.count(None), max_steps)
            )


def _task(draws: random.Random, kind: StrikeKind, free: Sequence[str]) -> str | None:
    """Return the task at whose start a strike of this kind occurs; None if it occurs at a step of the training.

    A strike is one scheduled fault. `free` contains the tasks that have no strike at their start yet, without
    the task `train`.
    """
    if kind is StrikeKind.WORKER:  # a task that waits for its job needs no worker
        return draws.choice((TaskId.TRAIN, *free))
    is_service = kind in {*SERVICES, StrikeKind.ENGINE, StrikeKind.SCHEDULER}
    is_at_a_start = is_service and draws.random() < 1 / 3
    return draws.choice(free) if is_at_a_start and free else None


def _step(draws: random.Random, part: int, num_parts: int, max_steps: int) -> int:
    width = (LATEST - EARLIEST) * max_steps / num_parts
    return round(EARLIEST * max_steps + width * (part + draws.random()))


def _strike(draws: random.Random, *, number: int, kind: StrikeKind, moment: StrikeMoment) -> Strike:
    strike = Strike(number=number, kind=kind, moment=moment)
    match kind:
        case StrikeKind.NOTICED_INTERRUPTION:
            return replace(strike, notice_s=20.0)
        case StrikeKind.KILLED_RANK | StrikeKind.HUNG_HOST:
            return replace(strike, host=draws.choice(("algo-1", "algo-2")))
        case StrikeKind.S3_ERRORS | StrikeKind.S3_HALVES:
            return replace(strike, count=draws.randint(3, 12))
        case StrikeKind.S3_STALLS:
            return replace(strike, count=draws.randint(2, 4), stall_s=float(draws.randint(2, 5)))
        case StrikeKind.THROTTLING:
            return replace(strike, count=draws.randint(3, 6), operation=_operation(moment))
        case _:
            return strike


def _operation(moment: StrikeMoment) -> str:
    """Return the name of an operation of SageMaker's API that the run calls at or soon after the moment."""
    called = {
        "shard": "CreateTrainingJob",
        "evaluate": "CreateProcessingJob",
        "register": "CreateModelPackage",
    }
    return called.get(moment.task, "ListTrainingJobs")
