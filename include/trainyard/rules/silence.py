"""Rules on missing progress: no first step, no further step, no sign of life."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from trainyard.errors import Severity
from trainyard.rules.records import Facts, MarkRecord, Record, Start, StepRecord, Validation
from trainyard.rules.rule import HEALTHY, Judgement, Origin, Rule, RuleState

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxInitializationTime(Rule):
    """The first step came more than `threshold` minutes after the start of the processes.

    Source: SageMaker Developer Guide, MaxInitializationTime (default 20 minutes). AWS dropped this rule for
    PyTorch 2.0 and later.
    """

    ORIGIN = Origin.PROFILER
    READS = (Start, StepRecord, MarkRecord)
    NEEDS = "the times of starts and steps"
    ENDS_WITH_ATTEMPT = True
    threshold: float = 20.0

    def watch(self, facts: Facts) -> RuleState[Record]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _MaxInitializationTime(self)


class _MaxInitializationTime(RuleState[Record]):
    def __init__(self, rule: MaxInitializationTime) -> None:
        self._rule = rule
        self._started: float | None = None

    def see(self, record: Record) -> Iterator[Judgement]:
        if isinstance(record, Start):
            self._started = record.time
            return
        is_step = isinstance(record, StepRecord)
        if self._started is None or record.time is None or not (is_step or _is_clock(record)):
            return
        minutes = (record.time - self._started) / 60
        if is_step:
            self._started = None
        yield Judgement(
            is_violated=minutes > self._rule.threshold,
            text=f"{minutes:.1f} minutes {'until the first step' if is_step else 'without a step'}",
            numbers={"minutes": minutes},
        )


def _is_clock(record: Record) -> bool:
    return isinstance(record, MarkRecord) and record.kind in {"clock", "ended"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledTrainingRule(Rule):
    """No step was reported for `threshold` seconds.

    Source: SageMaker Developer Guide, StalledTraining (1800 s). AWS's `stop_training_on_fire` and
    `training_job_name_prefix` are accepted and have no effect: the rule's action decides whether the job is stopped.
    The time counts from the start of the processes or from the last step.
    """

    ORIGIN = Origin.DEBUGGER
    SEVERITY = Severity.ERROR
    READS = (Start, StepRecord, MarkRecord)
    NEEDS = "the times of steps"
    ENDS_WITH_ATTEMPT = True
    threshold: float = 1800.0
    stop_training_on_fire: bool = False
    training_job_name_prefix: str | None = None

    def watch(self, facts: Facts) -> RuleState[Record]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _Silence(self.threshold, counts=StepRecord, factor=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled(Rule):
    """A hang: no sign of life for more than `threshold` seconds and for more than `num_steps` median step times.

    Starts, steps, validations, checkpoints and `alive` marks are signs of life. Samples of the host are not.
    Until the first step after a start, at least `startup_s` seconds are allowed. If an attempt ended without a
    `done` mark, the time up to its end counts as silence.
    """

    SEVERITY = Severity.ERROR
    READS = (Start, StepRecord, Validation, MarkRecord)
    NEEDS = "the times of steps"
    ENDS_WITH_ATTEMPT = True
    threshold: float = 60.0
    num_steps: float = 10.0
    startup_s: float = 600.0

    def watch(self, facts: Facts) -> RuleState[Record]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _Silence(
            self.threshold, counts=Record, factor=self.num_steps, startup_s=self.startup_s
        )


class _Silence(RuleState[Record]):
    def __init__(
        self, threshold: float, *, counts: type[Record], factor: float, startup_s: float = 0.0
    ) -> None:
        self._threshold, self._counts, self._factor = threshold, counts, factor
        self._startup_s = startup_s
        self._counted = "step" if counts is StepRecord else "sign of life"
        self._last_sign_at: float | None = None
        self._step = 0
        self._last: tuple[int, float] | None = None
        self._has_stepped = self._is_done = False
        self._paces: list[float] = []

    def see(self, record: Record) -> Iterator[Judgement]:
        if record.time is None:
            return
        if isinstance(record, Start):
            self._last_sign_at, self._step, self._last = record.time, record.step, None
            self._has_stepped = self._is_done = False
            return
        if self._last_sign_at is not None and not self._is_done:
            yield self._judge(record.time - self._last_sign_at)
        if _is_clock(record):
            return
        self._is_done = isinstance(record, MarkRecord) and record.kind == "done"
        if isinstance(record, self._counts):
            self._last_sign_at, self._step = (
                max(self._last_sign_at or 0.0, record.time),
                record.step,
            )
        if isinstance(record, StepRecord):
            self._has_stepped = True
            self._note_pace(record.step, record.time)

    def _judge(self, silence: float) -> Judgement:
        pace = median(self._paces) if self._paces else 0.0
        limit = max(self._threshold, self._factor * pace)
        if not self._has_stepped:
            limit = max(limit, self._startup_s)
        if silence <= limit:
            return HEALTHY
        return Judgement(
            is_violated=True,
            step=self._step,
            text=f"no {self._counted} for {silence:.0f} s (allowed: {limit:.0f} s)",
            numbers={"silence_seconds": silence, "limit_seconds": limit},
        )

    def _note_pace(self, step: int, time: float) -> None:
        if self._last is not None and step > self._last[0]:
            self._paces.append((time - self._last[1]) / (step - self._last[0]))
            del self._paces[:-101]
        self._last = step, time


RULES: tuple[type[Rule], ...] = (
    MaxInitializationTime,
    StalledTrainingRule,
    Stalled,
)
