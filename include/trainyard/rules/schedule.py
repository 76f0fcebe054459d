"""Rule on the learning rate and its declared schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainyard.errors import Severity
from trainyard.rules.records import Facts, Record, Start, StepRecord
from trainyard.rules.rule import Judgement, Rule, RuleState
from trainyard.rules.series import History

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class LRSanity(Rule):
    """The learning rate differs from the declared one or is invalid (an error), or is zero or jumps (a warning).

    A rate is invalid if it is negative, NaN or infinite.

    If the conf declares a linear warm-up and a cosine decay, the rate may differ from the declared one by at most
    `tolerance` times the peak. Zeros and jumps are then not checked.

    Without a declared schedule a rate of zero is expected at the first step and at the end of a decay. The end of a
    decay is assumed if:

    - the step is the run's last,
    - the rate before was at most `decayed_share` of the highest so far, or
    - another fall as large as the last one would reach zero (below 1 % of the highest so far).

    A rise by more than `jump_factor` is a jump in two cases. Either the rate was constant from the first step on, or
    it has fallen before and the new rate is also more than `jump_factor` times the highest so far. Other rises are
    warm-ups or restarts, as in SGDR.
    """

    SEVERITY = Severity.ERROR
    READS = (Start, StepRecord)
    NEEDS = "the learning rate of steps"
    SHARED = ("learning_rate",)
    jump_factor: float = 2.0
    decayed_share: float = 0.05
    tolerance: float = 0.01

    def watch(self, facts: Facts) -> RuleState[Record]:
        """Return the state of this rule before the first record of a training."""
        return _LRSanity(self, facts)


class _LRSanity(RuleState[Record]):
    def __init__(self, rule: LRSanity, facts: Facts) -> None:
        self._rule, self._facts = rule, facts
        self._seen, self._peaks = History(), History()
        self._fell_at: int | None = None

    def see(self, record: Record) -> Iterator[Judgement]:
        if isinstance(record, Start) and record.max_steps is not None:
            self._facts = replace(self._facts, max_steps=record.max_steps)
        if isinstance(record, StepRecord) and record.learning_rate is not None:
            yield self._judged(record, record.learning_rate)

    def _judged(self, record: StepRecord, rate: float) -> Judgement:
        is_sure, fault = True, self._certain_fault(record.step, rate)
        if fault is None and declared_rate(self._facts, record.step) is None:
            is_sure, fault = False, self._odd(record.step, rate)
        if math.isfinite(rate):
            self._add(record.step, rate)
        return Judgement(
            is_violated=fault is not None,
            text=fault or "",
            numbers={"learning_rate": rate},
            severity=None if is_sure else Severity.WARNING,
        )

    def _certain_fault(self, step: int, rate: float) -> str | None:
        """Return the fault if the rate is certainly wrong, otherwise None.

        A negative or non-finite rate is wrong in any schedule. If a schedule is declared, a rate is also wrong if
        it differs from the schedule's rate at this step by more than `tolerance` times the schedule's peak rate.
        """
        if not math.isfinite(rate) or rate < 0:
            return f"the learning rate is {rate:g}"
        declared = declared_rate(self._facts, step)
        if declared is not None:
            expected, highest = declared
            if abs(rate - expected) > self._rule.tolerance * highest:
                return f"the learning rate is {rate:.4g}, the declared schedule has {expected:.4g}"
        return None

    def _odd(self, step: int, rate: float) -> str | None:
        """Return the fault if the rate is zero or has jumped, otherwise None.

        A zero rate or a rise is not a fault if it is usual in schedules, for example a zero rate at the end of a
        decay.
        """
        rates, factor = self._seen.values, self._rule.jump_factor
        if rate == 0:
            is_right = step <= 1 or self._may_end(step)
            return None if is_right else f"the learning rate is {rate:g}"
        if not rates or rates[-1] <= 0 or rate <= factor * rates[-1]:
            return None
        peak = self._peaks.values[-1]
        has_stood = self._fell_at is None and len(rates) > 1 and rates[0] == rates[-1]
        if has_stood or (self._fell_at is not None and rate > factor * peak):
            return f"the learning rate jumped from {rates[-1]:.4g} to {rate:.4g}"
        return None

    def _may_end(self, step: int) -> bool:
        """Return whether a learning rate of zero at `step` can be the end of a decay (see `LRSanity`)."""
        rates, last = self._seen.values, self._facts.max_steps
        if last is not None and step >= last:
            return True
        if not rates or not (peak := self._peaks.values[-1]):
            return False
        reaches_zero = (
            len(rates) > 1 and rates[-1] < rates[-2] and 2 * rates[-1] - rates[-2] < 0.01 * peak
        )
        return rates[-1] <= self._rule.decayed_share * peak or reaches_zero

    def _add(self, step: int, rate: float) -> None:
        rates = self._seen.values
        if rates and rate < rates[-1] and self._fell_at is None:
            self._fell_at = step
        self._peaks.add(step, max(rate, self._peaks.values[-1] if rates else 0.0))
        self._seen.add(step, rate)

    def roll_back(self, step: int) -> None:
        self._seen.roll_back(step)
        self._peaks.roll_back(step)
        if self._fell_at is not None and self._fell_at > step:
            self._fell_at = None


def declared_rate(facts: Facts, step: int) -> tuple[float, float] | None:
    """Return the declared rate of step `step` and the schedule's peak rate; None if no schedule is declared.

    The first step is 1. The schedule is a linear warm-up, then a cosine (Loshchilov and Hutter 2017, SGDR,
    equation 5). Worked: the peak rate is 1, `min_learning_rate_ratio` is 0, and 10 of 110 steps are warm-up.
    The rate is 0.5 at step 5, 1 at step 10 and 0.5 at step 61.
    """
    peak, warmup, last = facts.peak_learning_rate, facts.warmup_steps, facts.max_steps
    ratio = facts.min_learning_rate_ratio
    if peak is None or warmup is None or last is None or ratio is None:
        return None
    warmup = min(warmup, last)
    before = step - 1
    if before < warmup:
        return peak * (before + 1) / warmup, peak
    progress = min(1.0, (before - warmup) / max(1, last - warmup))
    return peak * (ratio + (1 - ratio) * 0.5 * (1 + math.cos(math.pi * progress))), peak


RULES: tuple[type[Rule], ...] = (LRSanity,)
