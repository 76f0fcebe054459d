"""Rule on accelerators that are paid for but not used: no GPU of any host works while the training runs steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.rules.bottlenecks import GPUS
from trainyard.rules.records import (
    Facts,
    HostSample,
    MarkRecord,
    Record,
    Start,
    StepRecord,
    Validation,
)
from trainyard.rules.rule import Judgement, Rule, RuleState

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAMPLE_S = 10.0
"""Longest time in seconds from the last sample to the start of a step that is evaluated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleAccelerators(Rule):
    """For at least `minutes` minutes of step time, no GPU's utilization was above `most_percent` %.

    This time must also cover at least `num_steps` steps. Only the time of steps counts. Start-up, validation,
    checkpoints and downtime are not idle time. After one busy sample, the time and the number of steps are
    counted from 0 again. Typical causes: the script computes on the CPU, or steps wait for data almost all the
    time.
    """

    READS = (Start, StepRecord, HostSample, Validation, MarkRecord)
    NEEDS = f"{GPUS}: utilization, and the times of steps"
    IS_PER_RANK = False
    ENDS_WITH_ATTEMPT = True
    ON_REQUEST = "the allowed idle time is the author's choice: stop_if_idle_minutes"
    minutes: float = 30.0
    most_percent: float = 5.0
    num_steps: int = 3

    def watch(self, facts: Facts) -> RuleState[Record]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _IdleAccelerators(self)


class _IdleAccelerators(RuleState[Record]):
    def __init__(self, rule: IdleAccelerators) -> None:
        self._rule = rule
        self._begin()

    def _begin(self) -> None:
        self._step = -1
        self._stepped_at: float | None = None
        self._sampled_at = self._busy_at = float("-inf")
        self._paused = False
        self._busy()

    def _busy(self) -> None:
        self._idle_s, self._num_steps, self._most_seen = 0.0, 0, 0.0

    def roll_back(self, step: int) -> None:  # noqa: ARG002  # the processes start anew
        self._begin()

    def see(self, record: Record) -> Iterator[Judgement]:
        if record.time is None:
            return
        match record:
            case Start():
                self._stepped_at = None
            case HostSample():
                self._sample(record, record.time)
            case StepRecord() if record.step > self._step:
                yield from self._judge(record, record.time)
            case Validation() | MarkRecord(kind="checkpoint"):
                self._paused = True
            case _:
                pass

    def _sample(self, sample: HostSample, time: float) -> None:
        known = [e.utilization_percent for e in sample.gpus if e.utilization_percent is not None]
        if not known:
            return
        self._sampled_at = max(self._sampled_at, time)
        if max(known) > self._rule.most_percent:
            self._busy_at = max(self._busy_at, time)
            self._busy()
        self._most_seen = max(self._most_seen, *known) if self._idle_s else max(known)

    def _judge(self, record: StepRecord, time: float) -> Iterator[Judgement]:
        began, is_paused, before = self._stepped_at, self._paused, self._step
        self._step, self._stepped_at, self._paused = record.step, time, False
        if began is None:
            return
        if self._sampled_at < began - _SAMPLE_S:
            self.why_not = "no utilization of a GPU is known"
            return
        seconds = time - max(began, self._busy_at)
        if record.step_seconds is not None:
            seconds = min(seconds, record.step_seconds * (record.step - before))
        elif is_paused:
            seconds = 0.0
        if seconds > 0:
            self._idle_s, self._num_steps = self._idle_s + seconds, self._num_steps + 1
        rule = self._rule
        yield Judgement(
            is_violated=self._idle_s >= 60 * rule.minutes and self._num_steps >= rule.num_steps,
            text=f"no GPU was above {rule.most_percent:g} % for {self._idle_s / 60:.1f} minutes of "
            f"{self._num_steps} steps; stop_if_idle_minutes is {rule.minutes:g}",
            numbers={"idle_seconds": self._idle_s, "most_percent": self._most_seen},
        )


RULES: tuple[type[Rule], ...] = (IdleAccelerators,)
