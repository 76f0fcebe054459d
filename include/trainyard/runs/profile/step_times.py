"""Duration of each step by part, on each rank."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from trainyard.rules.records import Record, Start, StepRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class Part(StrEnum):
    """Parts of a step's time, in the order in which a step runs them."""

    DATA_WAIT = "data_wait"
    FORWARD = "forward"
    BACKWARD = "backward"
    COMMUNICATION = "communication"
    OPTIMIZER = "optimizer"
    OTHER = "other"


PART_NAMES: Mapping[Part, str] = {
    Part.DATA_WAIT: "waiting for data",
    Part.FORWARD: "forward",
    Part.BACKWARD: "backward",
    Part.COMMUNICATION: "waiting for other ranks",
    Part.OPTIMIZER: "optimizer",
    Part.OTHER: "other",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One step on one rank; `parts` add up to `seconds`.

    Attributes:
        seconds: duration of the step, or the sum of its measured parts if that is longer.
        local_seconds: seconds from the start of the step to its first collective.
        time: end of the step, epoch seconds.
        is_first: whether the step is the first after a start, which includes one-time work.
        has_parts: whether its parts were measured; if not, all of its time is `other`.
    """

    step: int
    rank: int
    seconds: float
    parts: Mapping[Part, float]
    local_seconds: float | None = None
    time: float | None = None
    is_first: bool = False
    has_parts: bool = True


def step_times(records: Iterable[Record]) -> list[StepTime]:
    """Return the time of each step on each rank, sorted by step and rank.

    Steps that a restart discarded are left out. A repeated step has the time of its last repetition.

    `communication` is the time that collectives block the rank. Outside of the backward pass, this time is
    measured. Within the backward pass, it is calculated as the wait for the slowest rank: the longest
    `local_seconds` of any rank in this step, minus the rank's own. The measured backward time includes this
    wait, so the wait is subtracted from `backward`. The transfer itself overlaps the backward pass and stays in
    `backward`.

    Worked example: two ranks measure a backward time of 50 ms, and their local times are 1 ms and 31 ms. The
    first rank waits 30 ms, so its `backward` is 20 ms and its `communication` is 30 ms.
    """
    found = []
    for step, ranks in sorted(_surviving(records).items()):
        local = [each.local_seconds for each, _ in ranks.values() if each.local_seconds is not None]
        slowest = max(local) if len(local) == len(ranks) > 1 else None
        for rank, (record, is_first) in sorted(ranks.items()):
            found.append(_step_time(step, rank, record, slowest, is_first=is_first))
    return found


def steady(times: Iterable[StepTime]) -> list[StepTime]:
    """Return the steps without the first step of each start."""
    return [each for each in times if not each.is_first]


def _surviving(records: Iterable[Record]) -> dict[int, dict[int, tuple[StepRecord, bool]]]:
    """Return a pair (record, is_first) for each step and rank, keyed by step and then by rank.

    Steps that a restart discarded are left out. `record` is the last record of the step on the rank. `is_first`
    is true if the step is the rank's first after a start.
    """
    by_rank: dict[int, dict[int, tuple[StepRecord, bool]]] = defaultdict(dict)
    starting: set[int] = set()
    for record in records:
        if isinstance(record, Start):
            kept = by_rank[record.rank]
            by_rank[record.rank] = {at: each for at, each in kept.items() if at <= record.step}
            starting.add(record.rank)
        elif isinstance(record, StepRecord) and record.step_seconds:
            by_rank[record.rank][record.step] = record, record.rank in starting
            starting.discard(record.rank)
    by_step: dict[int, dict[int, tuple[StepRecord, bool]]] = defaultdict(dict)
    for rank, steps in by_rank.items():
        for step, each in steps.items():
            by_step[step][rank] = each
    return by_step


def _step_time(
    step: int, rank: int, record: StepRecord, slowest: float | None, *, is_first: bool
) -> StepTime:
    backward = record.backward_seconds or 0.0
    behind = 0.0 if slowest is None else slowest - (record.local_seconds or 0.0)
    waited = min(behind, backward)
    measured = {
        Part.DATA_WAIT: record.data_wait_seconds or 0.0,
        Part.FORWARD: record.forward_seconds or 0.0,
        Part.BACKWARD: backward - waited,
        Part.COMMUNICATION: (record.communication_seconds or 0.0) + waited,
        Part.OPTIMIZER: record.optimizer_seconds or 0.0,
    }
    in_parts = sum(measured.values())
    total = max(record.step_seconds or 0.0, in_parts)
    return StepTime(
        step=step,
        rank=rank,
        seconds=total,
        parts={**measured, Part.OTHER: total - in_parts},
        local_seconds=record.local_seconds,
        time=record.time,
        is_first=is_first,
        has_parts=any(each is not None for each in _parts_of(record)),
    )


def _parts_of(record: StepRecord) -> Iterator[float | None]:
    yield record.data_wait_seconds
    yield record.forward_seconds
    yield record.backward_seconds
    yield record.optimizer_seconds
