"""Rules on single losses: not finite, or far above the earlier ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, ClassVar

from trainyard.errors import Severity
from trainyard.rules.records import Facts, Record, StepRecord
from trainyard.rules.rule import HEALTHY, Judgement, Rule, RuleState
from trainyard.rules.series import (
    LEAST_OBSERVATIONS,
    History,
    SeriesRow,
    median_and_mad,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


SCALER_SKIPS = 40
"""Number of consecutive non-finite steps after which a loss scaler no longer recovers."""
UNKNOWN_SKIPS = 5
"""Number of consecutive non-finite steps after which a script that may skip steps has skipped none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRule(Rule):
    """Base of the rules that read the losses of one rank, in order."""

    READS: ClassVar[tuple[type[Record], ...]] = (StepRecord,)
    SHARED: ClassVar[tuple[str, ...]] = ("loss",)
    NEEDS = "the loss of steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite(LossRule):
    """On any rank, the loss or the gradient norm is NaN or infinite, and the training does not skip the step.

    An issue needs a number of non-finite values in a row. The first case that applies determines the number:

    1. For gradient norms, if a loss scaler may skip steps (fp16 or an unknown precision), the number is
       `skipped_steps`. A scaler skips steps whose gradient norm is not finite, halves its scale, and recovers.
       The default is 40. It exceeds 32, the number of halvings from Megatron-LM's first scale (2^32) to 1.
    2. For losses, if the gradient norm of the step is finite, the number is `skipped_steps`, because the step
       does no damage. For example, torch's cross entropy of a batch without a label is NaN, and its gradient is
       zero.
    3. Without a loss scaler, if it is known how many steps the script skips, the number is one more than that.
       With `on_non_finite: fail` the script skips none, so the number is 1.
    4. Otherwise the number is `patience`. It changes to `skipped_steps` once a finite value has followed a
       non-finite one. This shows that the run skips such steps, because otherwise all later losses would be
       NaN.

    The number is always larger than the number of steps that the script is known to skip. If the script ended
    the run at a step with a non-finite value, this single value makes an issue, unless the step's gradient norm
    is finite. Source: torchtitan checks loss and gradient norm before each optimizer step
    (torchtitan/train.py, 2026-08).
    """

    SEVERITY = Severity.ERROR
    NEEDS = "the loss or the gradient norm of steps"
    SHARED = ()
    skipped_steps: int = SCALER_SKIPS
    patience: int = UNKNOWN_SKIPS

    def watch(self, facts: Facts) -> RuleState[StepRecord]:
        """Return the state of this rule before the first record of a training."""
        return _NonFinite(self, facts)


def is_scaled(facts: Facts) -> bool:
    """Return whether a loss scaler may skip steps. It may if the precision is fp16 or unknown."""
    return facts.precision in {None, "fp16"}


class _NonFinite(RuleState[StepRecord]):
    def __init__(self, rule: NonFinite, facts: Facts) -> None:
        known = facts.skipped_steps
        self._is_scaled = is_scaled(facts)
        self._may_skip = self._is_scaled or known is None
        self._fewest = max(1 + (known or 0), rule.patience if self._may_skip else 1)
        self._most = max(self._fewest, rule.skipped_steps)
        self._rows = {name: SeriesRow(self._most) for name in ("loss", "gradient norm")}

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        values = {"loss": record.loss, "gradient norm": record.gradient_norm}
        seen = {name: value for name, value in values.items() if value is not None}
        is_harmless = math.isfinite(seen.get("gradient norm", math.nan))
        allows = {"loss": is_harmless, "gradient norm": self._is_scaled}
        for name, value in seen.items():
            self._rows[name].add(record.step, is_met=not math.isfinite(value))
        bad = [
            name
            for name, value in seen.items()
            if self._rows[name].length >= self._needed(name, allows=allows[name])
            or (record.ends_run and not is_harmless and not math.isfinite(value))
        ]
        if bad:
            yield _not_finite(bad[0], seen[bad[0]])
        elif seen:
            yield HEALTHY

    def _needed(self, name: str, *, allows: bool) -> int:
        """Return the number of consecutive non-finite values that count as an issue.

        Args:
            name: name of the value, `loss` or `gradient norm`.
            allows: whether a non-finite value is harmless at this step.
        """
        has_continued = self._may_skip and self._rows[name].has_ended
        return self._most if allows or has_continued else self._fewest

    def roll_back(self, step: int) -> None:
        for row in self._rows.values():
            row.roll_back(step)


def _not_finite(what: str, value: float) -> Judgement:
    return Judgement(is_violated=True, text=f"the {what} is {value}", numbers={what: value})


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSpike(LossRule):
    """The loss spikes (a warning) or diverges (an error).

    A spike: `patience` losses in a row are above `median + num_mads * MAD` and above `ratio` times the median
    of the last `window` steps. Such losses are not added to the window. Source: LLM Foundry's KillLossSpike (2
    times the mean, 5 in a row, window 100), with medians in place of means. Remedy: Chowdhery et al. 2022
    (PaLM) restart about 100 steps earlier and skip 200 to 500 batches.

    Divergence: growth by a factor that does not shrink, far beyond what the run has shown. For `stop_steps`
    steps and at least `stop_patience` losses, each loss is above `stop_growth` times the run's earlier maximum.
    These losses, divided into three thirds in the order of their steps, meet all of these conditions:

    - The median of each third is at least `stop_growth` times the median of the third before.
    - The growth does not slow down. With the medians m1, m2 and m3 of the thirds, log(m3 / m2) is at least
      `stop_acceleration` times log(m2 / m1). The two logarithms are equal for exponential growth.
    - The newest loss and the median of the last third are above `stop_ratio` times the earlier maximum.
    - The growth does not pause. If the last two thirds are divided into six equal pieces, the median of each
      piece is at least `stop_growth` times the median of the piece before.

    A too large learning rate and an unstable critic let the loss grow in this way until it overflows. Growth
    that slows down or pauses is only a warning, because healthy losses show it. Examples are a generator's loss
    against a better discriminator, a loss beta * KL, and a critic's loss while returns rise. There is no
    divergence while the median of the window is zero or below, because growth by a factor then has no meaning.
    A loss that was negative at first and diverges is found when it overflows (`NonFinite`).

    A median or a maximum below `stop_floor` counts as `stop_floor`. A loss that starts near zero has no scale,
    and its growth is healthy: TRL's GRPOTrainer reports beta * KL, which is zero until the policy leaves its
    reference. `stop_ratio` is so large because a healthy critic's loss may grow exponentially to 1e9, for
    example if returns rise from 1 to 100,000 and are not normalized.

    Worked: after losses of 2, the loss n steps later is 9 * 2 ** (n / 2). After 100 steps the medians of the
    thirds are 2,300, 3e8 and 4e13, so the loss diverges. A loss of 9 + n / 20 never does.
    """

    window: int = 100
    num_mads: float = 8.0
    ratio: float = 1.5
    patience: int = 3
    stop_ratio: float = 1e10
    stop_floor: float = 1.0
    stop_patience: int = 9
    stop_steps: int = 100
    stop_growth: float = 2.0
    stop_acceleration: float = 0.9
    warm_up: int = 50

    def watch(self, facts: Facts) -> RuleState[StepRecord]:  # noqa: ARG002  # the interface
        """Return the state of this rule before the first record of a training."""
        return _LossSpike(self)


class _LossSpike(RuleState[StepRecord]):
    def __init__(self, rule: LossSpike) -> None:
        self._rule, self._seen, self._peaks = rule, History(), History()
        self._row, self._diverging, self._high = SeriesRow(rule.patience), SeriesRow(), History()

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        loss, rule, step = record.loss, self._rule, record.step
        if loss is None or math.isnan(loss):
            return
        before = self._seen.last(rule.window)
        if len(before) < LEAST_OBSERVATIONS:
            self._add(step, loss)
            self.why_not = f"{len(before) + 1} losses; needs {LEAST_OBSERVATIONS}"
            return
        middle, mad = median_and_mad(before)
        peak = max(self._peaks.values[-1], rule.stop_floor)
        is_high = loss > middle + rule.num_mads * mad and loss > rule.ratio * middle
        self._row.add(step, is_met=is_high)
        limit = rule.stop_growth * max(middle, peak)
        self._diverging.add(step, is_met=is_high and middle > 0 and loss > limit)
        if is_high:
            self._high.add(step, loss)
        else:
            self._add(step, loss)
        prefix = f"loss {loss:.4g} is {_times(loss, middle)} the median {middle:.4g} of the last {rule.window} steps, "
        numbers = {"loss": loss, "median": middle, "mad": mad}
        yield Judgement(
            is_violated=self._row.length >= rule.patience,
            text=f"{prefix}{self._row.length} observations in a row",
            numbers=numbers,
        )
        yield Judgement(
            key="stop",
            is_violated=loss > rule.stop_ratio * peak and self._diverges(step, peak),
            text=f"{prefix}{self._diverging.length} observations in a row above {rule.stop_growth:g} times the highest "
            f"before, {peak:.4g}, and not slowing down",
            numbers={**numbers, "peak": peak},
            severity=Severity.ERROR,
        )

    def _add(self, step: int, loss: float) -> None:
        self._seen.add(step, loss)
        highest = self._peaks.values[-1] if len(self._peaks) else loss
        self._peaks.add(step, max(highest, loss))

    def _diverges(self, step: int, peak: float) -> bool:
        """Return whether enough losses are far above the earlier maximum, and grow without slowing down."""
        rule, row = self._rule, self._diverging
        if row.length < rule.stop_patience or step - row.onset < rule.stop_steps:
            return False
        losses = self._high.between(row.onset - 1, step)
        third = len(losses) // 3
        first, second, last = (
            median(each) for each in (losses[:third], losses[third:-third], losses[-third:])
        )
        growth, later_growth = second / first, last / second
        return (
            last > rule.stop_ratio * peak
            and min(growth, later_growth) >= rule.stop_growth
            and math.log(later_growth) >= rule.stop_acceleration * math.log(growth)
            and _least_growth(losses[third:]) >= rule.stop_growth
        )

    def roll_back(self, step: int) -> None:
        for each in (self._seen, self._peaks, self._row, self._diverging, self._high):
            each.roll_back(step)


def _least_growth(losses: list[float]) -> float:
    """Return the smallest factor between the medians of consecutive sixths of these losses.

    It is about 1 if the growth paused, and infinite for fewer than six losses.
    """
    length = len(losses) // 6
    if not length:
        return math.inf  # too few observations: a line every many steps
    medians = [median(losses[at * length : (at + 1) * length]) for at in range(6)]
    return min(later / earlier for earlier, later in pairwise(medians))


def _times(value: float, reference: float) -> str:
    return f"{value / reference:.2g} times" if reference > 0 else "above"


RULES: tuple[type[Rule], ...] = (
    NonFinite,
    LossSpike,
)
