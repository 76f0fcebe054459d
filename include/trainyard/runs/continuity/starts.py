"""Starts of the training processes with their steps, from the lines of a log."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from trainyard.runs.continuity.log_lines import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainyard.runs.continuity.log_lines import LogLine

# Events that are logged up to the `start` line of their processes. Their `step` is not a step of this start.
BEFORE_THE_START = frozenset({"start", "resume", "setup"})
_AT_THE_END_OF_A_STEP = frozenset({"step", "checkpoint", "alive"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """One step line, with its time in epoch seconds and its sample positions [first, end)."""

    step: int
    time: float
    first: int
    end: int
    loss: float | None


@dataclass(slots=True, kw_only=True)
class TrainingStart:
    """One start of a job's processes, with the values of its lines up to the next start.

    Attributes:
        time: epoch seconds of the `start` line.
        resumed_at: number of steps that were complete before this start.
        last_step: the highest step in its lines; resumed_at if there is none.
        last_time: epoch seconds of its last line.
        moments: (step, epoch seconds) of the lines that are logged at the end of a step, in order.
        stalls: seconds that each checkpoint blocked training.
    """

    job: str
    stream: str
    time: float
    resumed_at: int
    world_size: int | None
    global_batch_size: int
    num_samples: int
    seed: int
    max_steps: int | None
    attempt_id: str | None
    last_step: int
    last_time: float
    steps: list[LoggedStep] = field(default_factory=list)
    moments: list[tuple[int, float]] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)
    weights_sha256: str | None = None

    @classmethod
    def of(cls, event: Event, *, job: str, stream: str) -> TrainingStart | None:
        """Return the start that a `start` line describes; None if the line is incomplete."""
        resumed_at, batch = event.step, event.integer("global_batch_size")
        num_samples, seed = event.integer("num_samples"), event.integer("seed")
        if resumed_at is None or not batch or not num_samples or seed is None:
            return None
        return cls(
            job=job,
            stream=stream,
            time=event.time,
            resumed_at=resumed_at,
            world_size=event.integer("world_size"),
            global_batch_size=batch,
            num_samples=num_samples,
            seed=seed,
            max_steps=event.integer("max_steps"),
            attempt_id=event.values.get("attempt_id"),
            last_step=resumed_at,
            last_time=event.time,
        )

    def take(self, event: Event) -> None:
        """Add the values of one more line."""
        if event.kind in BEFORE_THE_START:
            return
        self.last_time = max(self.last_time, event.time)
        if event.step is None:
            return
        self.last_step = max(self.last_step, event.step)
        if event.kind in _AT_THE_END_OF_A_STEP:
            self.moments.append((event.step, event.time))
        match event.kind:
            case "step":
                self._take_step(event, event.step)
            case "checkpoint":
                self.stalls.append(event.number("stall_seconds") or 0.0)
            case "done":
                self.weights_sha256 = event.values.get("weights_sha256")
            case _:
                pass

    def moment_of(self, step: int) -> float:
        """Return the end of a step in epoch seconds, interpolated linearly between two lines.

        A step up to `resumed_at` has the time of the start. A step later than that of the last line has the time
        of the last line.
        """
        before, at = self.resumed_at, self.time
        for later, moment in sorted(self.moments):
            if later >= step > before:
                return at + (moment - at) * (step - before) / (later - before)
            if later > before:
                before, at = later, moment
        return at if step > self.resumed_at else self.time

    def _take_step(self, event: Event, step: int) -> None:
        positions = event.positions()
        if positions:
            first, end = positions
            self.steps.append(
                LoggedStep(
                    step=step, time=event.time, first=first, end=end, loss=event.number("loss")
                )
            )


def read_starts(lines: Iterable[LogLine]) -> list[TrainingStart]:
    """Return the starts, oldest first. The lines may be in any order.

    A log stream belongs to one host in one lifetime of the instances. This function sorts the lines of each
    stream by time. Of several lines with the same millisecond, `start` lines come first. Lines before the first
    `start` line of a stream are ignored.
    """
    streams: dict[tuple[str, str], list[LogLine]] = defaultdict(list)
    for line in lines:
        streams[line.job, line.stream].append(line)
    starts: list[TrainingStart] = []
    for (job, stream), written in streams.items():
        written.sort(key=_place)
        starts += _split(written, job=job, stream=stream)
    return sorted(starts, key=attrgetter("time"))


def _place(line: LogLine) -> tuple[int, bool, int]:
    event = Event.of(line)
    return line.time_ms, event.kind != "start", event.step or 0


def _split(lines: list[LogLine], *, job: str, stream: str) -> Iterator[TrainingStart]:
    """Yield each start with all its lines."""
    current: TrainingStart | None = None
    for line in lines:
        event = Event.of(line)
        begun = TrainingStart.of(event, job=job, stream=stream) if event.kind == "start" else None
        if begun and current:
            yield current
        current = begun or current
        if current and not begun:
            current.take(event)
    if current:
        yield current
