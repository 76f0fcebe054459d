"""Rules on the training loss over time: rising, not learning, and stagnating."""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.rules.loss import LossRule
from trainyard.rules.records import Facts, Record, Start, StepRecord
from trainyard.rules.rule import Judgement, Origin, Rule, RuleState
from trainyard.rules.series import (
    LEAST_OBSERVATIONS,
    SIGMA_PER_MEDIAN,
    History,
    Smoothed,
    noise_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class LossNotDecreasing(LossRule):
    """In `num_steps` steps, the loss fell by under `diff_percent` or rose by over `increase_threshold_percent`.

    Every `num_steps` steps, the loss is compared with the newest loss that is at least `num_steps` steps older.
    Source: SageMaker Developer Guide, LossNotDecreasing (defaults: 10 steps, 0.1 % and 5 %). On losses of
    minibatches these defaults fire in healthy runs (measured: 20 of 20).

    In the robust profile (`ROBUST`), the loss is smoothed by a median of five losses, then by a moving average
    with a decay of 0.98 per step. The smoothed loss is compared over 100 steps. In this profile, the rule
    reports only a rise that exceeds the noise, because the rule `Plateau` reports a flat loss.

    Attributes:
        diff_percent: the least fall, in percent; None disables this condition.
        smoothing: decay per step of the moving average of medians of five losses. 0 compares the losses
            themselves.
        noise_factor: number of standard errors that a rise must exceed.
    """

    ORIGIN = Origin.DEBUGGER
    ROBUST: ClassVar[Mapping[str, Any]] = {
        "num_steps": 100,
        "diff_percent": None,
        "smoothing": 0.98,
        "noise_factor": 6.0,
        "warm_up": 100,
    }
    collection_names: str | None = None
    tensor_regex: str | None = None
    use_losses_collection: bool = True
    mode: str = "GLOBAL"
    num_steps: int = 10
    diff_percent: float | None = 0.1
    increase_threshold_percent: float = 5.0
    smoothing: float = 0.0
    noise_factor: float = 0.0

    def watch(self, facts: Facts) -> RuleState[StepRecord]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _LossNotDecreasing(self)


class _LossNotDecreasing(RuleState[StepRecord]):
    def __init__(self, rule: LossNotDecreasing) -> None:
        self._rule, self._raw = rule, History()
        self._smooth = Smoothed(rule.smoothing)
        self._checked: list[int] = []

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        if record.loss is None or not math.isfinite(record.loss):
            return
        rule, step = self._rule, record.step
        self._raw.add(step, record.loss)
        now = self._smooth.add(
            step, median(self._raw.values[-5:]) if rule.smoothing else record.loss
        )
        before = self._smooth.history.at(step - rule.num_steps)
        if before is None or (self._checked and step - self._checked[-1] < rule.num_steps):
            if not self._checked:
                self.why_not = f"{step} steps; it compares losses {rule.num_steps} steps apart"
            return
        self._checked.append(step)
        yield self._compare(step, before, now)

    def _compare(self, step: int, before: float, now: float) -> Judgement:
        rule = self._rule
        fall = 100.0 * (before - now) / max(abs(before), 1e-12)
        error = self._error_percent(before)
        is_flat = rule.diff_percent is not None and fall < rule.diff_percent
        is_rise = -fall > max(rule.increase_threshold_percent, rule.noise_factor * error)
        change = f"fell by {fall:.3g} %" if fall >= 0 else f"rose by {-fall:.3g} %"
        return Judgement(
            is_violated=is_flat or is_rise,
            text=f"from {before:.4g} to {now:.4g} the loss {change} over {rule.num_steps} steps until {step}",
            numbers={"before": before, "now": now, "fall_percent": fall, "noise_percent": error},
        )

    def _error_percent(self, before: float) -> float:
        """Return the standard error of the difference of two moving averages, in percent of the older one."""
        if not self._rule.noise_factor:
            return 0.0
        recent = self._raw.last(2 * self._rule.num_steps)
        gap = max(1.0, 2 * self._rule.num_steps / max(1, len(recent)))
        decay = self._rule.smoothing**gap
        share = math.sqrt(2 * (1 - decay) / (1 + decay))
        return 100.0 * noise_of(recent) * share / max(abs(before), 1e-12)

    def roll_back(self, step: int) -> None:
        self._raw.roll_back(step)
        self._smooth.roll_back(step)
        self._checked = [each for each in self._checked if each <= step]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotLearning(LossRule):
    """After `min_steps` steps the loss is still at its initial level.

    Typical causes are noisy labels and a learning rate of zero.

    The limit is `ratio` times the median loss of the first `start_steps` steps. There is an issue if the median
    loss of the last `window` steps is above this limit by at least `noise_factor` standard errors. Worked: a
    median that falls from 4.0 to 3.9 is 0.02 above the limit, 0.97 x 4.0 = 3.88. With `noise_factor` 2, that is
    an issue if the standard error is at most 0.01.

    The rule is evaluated after `min_steps` steps, or after `share` of the run if that is more. At least half of
    this number of steps must have passed since the learning rate last rose. The rule is not evaluated if one of
    the first losses is zero or negative, or if the beginning of the run was not observed. An issue is a
    warning, because a healthy fine-tuning may lower the loss by less than the noise. Every rule of AWS that
    finds such a training also fires on healthy runs.
    """

    READS = (Start, StepRecord)
    min_steps: int = 200
    window: int = 100
    ratio: float = 0.97
    start_steps: int = 10
    share: float = 0.1
    noise_factor: float = 2.0

    def watch(self, facts: Facts) -> RuleState[Record]:
        """Return the state of this rule before the first record of a training."""
        return _NotLearning(self, facts.max_steps)


class _NotLearning(RuleState[Record]):
    def __init__(self, rule: NotLearning, max_steps: int | None) -> None:
        self._rule, self._seen, self._max_steps = rule, History(), max_steps
        self._rates, self._rose_at = History(), 0
        self._begins_at: int | None = None

    def see(self, record: Record) -> Iterator[Judgement]:
        if isinstance(record, Start):
            self._max_steps = record.max_steps or self._max_steps
            known = record.step if self._begins_at is None else self._begins_at
            self._begins_at = min(record.step, known)
        elif isinstance(record, StepRecord):
            self._note_rate(record)
            if record.loss is not None and not math.isnan(record.loss):
                self._seen.add(record.step, record.loss)
                yield from self._judge(record.step)

    def _judge(self, step: int) -> Iterator[Judgement]:
        rule = self._rule
        if self._begins_at:
            self.why_not = (
                f"the first losses were not observed: they begin after step {self._begins_at}"
            )
            return
        recent = self._seen.last(rule.window)
        first_step = self._seen.steps[0]
        start = self._seen.between(first_step - 1, first_step + rule.start_steps - 1)
        least = max(rule.min_steps, round(rule.share * (self._max_steps or 0)))
        done = step - max(first_step - 1, self._rose_at - least // 2)
        if done < least or len(recent) < LEAST_OBSERVATIONS:
            self.why_not = (
                f"{step} steps, {len(recent)} recent losses, learning rate rising until {self._rose_at}; needs "
                f"{least} steps, {least // 2} of them after the rise, {LEAST_OBSERVATIONS} losses"
            )
            return
        first, now = median(start), median(recent)
        if min(start) <= 0:
            self.why_not = (
                f"the lowest of the first losses is {min(start):.3g}; needs losses above 0"
            )
            return
        limit = rule.ratio * first
        error = SIGMA_PER_MEDIAN * noise_of(recent) * math.sqrt(1 / len(start) + 1 / len(recent))
        yield Judgement(
            is_violated=now - rule.noise_factor * error >= limit,
            text=f"the median loss of the last {rule.window} steps is {now:.4g}, the first was {first:.4g}: "
            f"less than {1 - rule.ratio:.0%} were learned",
            numbers={"median": now, "first": first, "limit": limit, "standard_error": error},
        )

    def _note_rate(self, record: StepRecord) -> None:
        rate = record.learning_rate
        if rate is None or not math.isfinite(rate):
            return
        if self._rates.values and rate > self._rates.values[-1]:
            self._rose_at = record.step
        self._rates.add(record.step, rate)

    def roll_back(self, step: int) -> None:
        self._seen.roll_back(step)
        self._rates.roll_back(step)
        pairs = zip(self._rates.steps[1:], self._rates.values, self._rates.values[1:], strict=False)
        self._rose_at = max((at for at, before, now in pairs if now > before), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plateau(LossRule):
    """The loss stopped falling: from the run's second third to its last third it fell by less than `diff_percent`.

    The rule compares the mean losses of the two thirds. The thirds grow with the run, since losses fall like a
    power of the number of steps. After a comparison, the next one follows once the run has grown by one
    percent.

    The rule is not evaluated if the loss is too noisy to show a fall of `detectable_percent`. This is the case
    if `noise_factor` standard errors are more than `detectable_percent`.
    """

    diff_percent: float = 0.1
    detectable_percent: float = 1.0
    noise_factor: float = 3.0
    min_steps: int = 200
    persistence: int = 5

    def watch(self, facts: Facts) -> RuleState[StepRecord]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _Plateau(self)


class _Plateau(RuleState[StepRecord]):
    def __init__(self, rule: Plateau) -> None:
        self._rule, self._seen, self._looked = rule, History(), list[int]()

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        if record.loss is None or not math.isfinite(record.loss):
            return
        rule, step = self._rule, record.step
        self._seen.add(step, record.loss)
        if self._looked and step < self._looked[-1] + self._looked[-1] // 100:
            return
        third = step // 3
        last = self._seen.between(step - third, step)
        before = self._seen.between(step - 2 * third, step - third)
        least = min(len(last), len(before))
        if step < rule.min_steps or least < LEAST_OBSERVATIONS:
            self.why_not = f"{step} steps, {least} losses a third; needs {rule.min_steps}, {LEAST_OBSERVATIONS}"
            return
        self._looked.append(step)
        then, now = sum(before) / len(before), sum(last) / len(last)
        size = max(abs(then), 1e-12)
        error = 100.0 * noise_of(before + last) * math.sqrt(1 / len(last) + 1 / len(before)) / size
        if rule.noise_factor * error > rule.detectable_percent:
            self.why_not = f"the loss is too noisy: means of {least} losses differ by {error:.2g} % by chance alone"
            return
        fall = 100.0 * (then - now) / size
        yield Judgement(
            is_violated=fall < rule.diff_percent,
            text=f"the mean loss went from {then:.4g} to {now:.4g} over the last {2 * third} steps, a fall of "
            f"{fall:.2g} %",
            numbers={"before": then, "now": now, "fall_percent": fall, "noise_percent": error},
        )

    def roll_back(self, step: int) -> None:
        self._seen.roll_back(step)
        self._looked = [each for each in self._looked if each <= step]


RULES: tuple[type[Rule], ...] = (
    LossNotDecreasing,
    NotLearning,
    Plateau,
)
