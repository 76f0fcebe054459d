"""Metric curves, progress and checkpoints of a training, read from the lines that its log has so far."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trainyard.runs.builder import finite
from trainyard.runs.continuity.log_lines import Event, LogLine
from trainyard.runs.continuity.starts import BEFORE_THE_START
from trainyard.runs.evaluation_metrics import finite_number
from trainyard.training_line import PREFIX, without_rank

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_POINTS = 20_000
MOST_VALIDATIONS = 2_000
"""Number of validations above which they are thinned, too."""
MOST_LOG_LINES = 200
LONGEST_LINE = 4_000
MOST_CHECKPOINTS = 500
MOST_METRICS = 50
_NO_METRICS = frozenset(
    {"step", "epoch", "max_steps", "eta_seconds", "samples", "digest", "validation_tokens"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Metrics of one step line or one validation.

    Attributes:
        index: index of the line in the training, from 0; the web page requests the points after its last index.
        attempt: number of the attempt, which is a start of the processes; the first attempt is 1.
        time: epoch seconds.
        is_kept: whether thinning keeps the point.
    """

    index: int
    step: int
    attempt: int
    time: float
    is_kept: bool
    values: Mapping[str, float]

    def to_row(self) -> list[Any]:
        """Return `[index, step, attempt, time, values]`, with None in place of NaN and infinity."""
        return [self.index, self.step, self.attempt, round(self.time, 3), finite(self.values)]


@dataclass(slots=True)
class TrainingEvents:
    """Reader of a training's log, line by line over all its jobs and starts in order. Its memory is bounded.

    The indices of the curve's points depend on the log alone, so all web servers number the points alike.

    Attributes:
        stride: one of every `stride` points of the curve is kept. The value is 1 up to 20,000 points, then 2,
            4, ...
        attempt: number of starts so far.
        starts: each start with its step, time, job and ranks. A start that was followed by another one also has
            `lost_from`, the time at which its last surviving step ended. If both starts were on the same
            instances, the earlier one also has `restarted_from`, the time of its last line.
        stall_seconds: seconds that checkpoints blocked the training.
        newest: newest value of each metric, of at most 50 metrics.
    """

    stride: int = 1
    attempt: int = 0
    max_steps: int | None = None
    eta_s: float | None = None
    eta_at: float | None = None
    last_step: int | None = None
    is_done: bool = False
    stall_seconds: float = 0.0
    newest: dict[str, float] = field(default_factory=dict)
    starts: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: dict[int, dict[str, Any]] = field(default_factory=dict)
    log_tail: deque[LogLine] = field(default_factory=lambda: deque(maxlen=MOST_LOG_LINES))
    _points: list[CurvePoint] = field(default_factory=list)
    _num_points: int = 0
    _num_validations: int = 0
    _started_in: str | None = None
    _last_at: float = 0.0

    def read(self, line: LogLine) -> None:
        """Read one line of the log.

        A copy of the line, cut to 4,000 characters, is added to `log_tail`. Then a prefix of mpirun is removed
        from the line itself. If the rest is longer than 4,000 characters, or does not begin with Trainyard's
        prefix, the line has no other effect.
        """
        self.log_tail.append(replace(line, text=line.text[:LONGEST_LINE]))
        text = without_rank(line.text)
        if not text.startswith(PREFIX) or len(text) > LONGEST_LINE:
            return
        event = Event.of(replace(line, text=text))
        match event.kind:
            case "start":
                self._start(event, line, step=event.step or 0)
            case "step" | "eval":
                if self._started_in != line.stream:  # a script that prints no start line
                    self._start(event, line, step=max(0, (event.step or 0) - 1))
                self._measure(event)
            case "checkpoint" | "durable":
                self._checkpoint(event)
            case "done":
                self.is_done, self.eta_s = True, 0.0
            case _:
                pass
        if event.kind not in BEFORE_THE_START:
            self._last_at = event.time

    def rows(self, *, after: int = -1, stride: int = 1) -> tuple[bool, list[list[Any]]]:
        """Return (is_reset, rows) for the curve on the web page.

        If `is_reset` is true, the stride has changed: the page must replace all its points with `rows`. Otherwise
        `rows` has only the points after the page's last one.

        Args:
            after: index of the page's last point; -1 if it has none.
            stride: the stride of the page's points.
        """
        is_reset = stride != self.stride
        first = -1 if is_reset else after
        # New points are at the end: nearly every request is for a few of them.
        rows = []
        for point in reversed(self._points):
            if point.index <= first:
                break
            rows.append(point.to_row())
        return is_reset, rows[::-1]

    def _start(self, event: Event, line: LogLine, *, step: int) -> None:
        if self.starts:
            self.starts[-1]["lost_from"] = self._end_of_step(step)
            if self._started_in == line.stream:
                self.starts[-1]["restarted_from"] = self._last_at
        self._started_in = line.stream
        self.attempt += 1
        self.is_done = False
        self.max_steps = event.integer("max_steps") or self.max_steps
        start = {"attempt": self.attempt, "step": step, "time": event.time, "job": line.job}
        self.starts.append({**start, "world_size": event.integer("world_size")})

    def _end_of_step(self, step: int) -> float:
        """Return the time at which the newest start completed a step; the time of the start if no line shows it."""
        own = (each for each in reversed(self._points) if each.attempt == self.attempt)
        done = next((each.time for each in own if each.step <= step), None)
        return float(self.starts[-1]["time"]) if done is None else done

    def _measure(self, event: Event) -> None:
        if event.step is None:
            return
        values = {
            name: number
            for name in event.values
            if name not in _NO_METRICS and (number := event.number(name)) is not None
        }
        if event.kind == "step":
            self.last_step = event.step
            self.max_steps = event.integer("max_steps") or self.max_steps
            if (eta_s := finite_number(event.number("eta_seconds"))) is not None:
                self.eta_s, self.eta_at = eta_s, event.time
        for name, number in values.items():
            if name in self.newest or len(self.newest) < MOST_METRICS:
                self.newest[name] = number
        if values:
            self._keep(event, values)

    def _keep(self, event: Event, values: Mapping[str, float]) -> None:
        index = self._num_points
        self._num_points += 1
        is_kept_longer = event.kind == "eval" and self._num_validations < MOST_VALIDATIONS
        if index % self.stride and not is_kept_longer:
            return
        self._num_validations += is_kept_longer
        point = CurvePoint(
            index=index,
            step=event.step or 0,
            attempt=max(self.attempt, 1),
            time=event.time,
            is_kept=is_kept_longer,
            values=values,
        )
        self._points.append(point)
        if len(self._points) > MOST_POINTS:
            self.stride *= 2
            self._points = [
                each for each in self._points if each.is_kept or each.index % self.stride == 0
            ]

    def _checkpoint(self, event: Event) -> None:
        if event.step is None:
            return
        known = self.checkpoints.setdefault(event.step, {"step": event.step})
        if event.kind == "checkpoint":
            known["written_at"] = event.time
            self.stall_seconds += finite_number(event.number("stall_seconds")) or 0.0
        else:
            known |= {"durable_at": event.time, "bytes": event.integer("bytes")}
        if len(self.checkpoints) > MOST_CHECKPOINTS:
            del self.checkpoints[min(self.checkpoints)]
