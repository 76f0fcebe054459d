"""Rules on the time of steps: throughput, outliers and waits."""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.rules.records import Facts, Record, Start, StepRecord
from trainyard.rules.rule import HEALTHY, Judgement, Origin, Rule, RuleState
from trainyard.rules.series import (
    LEAST_OBSERVATIONS,
    MOST_OBSERVATIONS,
    SIGMA_PER_MAD,
    History,
    median_and_mad,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST = 0.7  # of a window


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputRegression(Rule):
    """The median tokens (or samples) per second of `window` steps is below `ratio` times the best median so far.

    The median is that of the last `window` steps. An issue is reported only if the median stays below the limit
    for half of `window` steps, so that a short load on the machine is not an issue.

    The first observation after each start of the processes is left out as warm-up. The evaluation begins when
    two conditions are met: the last `window` steps have at least `least` observations, and at least 70 % of
    `window` steps have passed since the first observation that was not left out. A start with another number of
    ranks resets the rule.
    """

    READS = (Start, StepRecord)
    NEEDS = "tokens or samples per second of steps"
    SHARED = ("units_per_second",)
    window: int = 100
    ratio: float = 0.7
    least: int = 8
    persistence: int = 3

    def watch(self, facts: Facts) -> RuleState[Record]:  # noqa: ARG002  # the interface
        """Return the state of this rule before the first record of a training."""
        return _ThroughputRegression(self)


class _ThroughputRegression(RuleState[Record]):
    def __init__(self, rule: ThroughputRegression) -> None:
        self._rule, self._world_size, self._is_first = rule, 0, True
        self._seen, self._best = History(), History()
        self._low_since: int | None = None

    def see(self, record: Record) -> Iterator[Judgement]:
        if isinstance(record, Start):
            self._is_first = True
            if record.world_size and record.world_size != self._world_size:
                self._world_size = record.world_size
                self._seen, self._best = History(), History()
                self._low_since = None
        elif isinstance(record, StepRecord) and record.units_per_second is not None:
            yield from self._judge(record.step, record.units_per_second)

    def _judge(self, step: int, rate: float) -> Iterator[Judgement]:
        rule = self._rule
        is_first, self._is_first = self._is_first, False
        if is_first:
            return
        self._seen.add(step, rate)
        recent = self._seen.last(rule.window)
        span = step - self._seen.steps[0]
        if len(recent) < rule.least or span < _MOST * rule.window:
            self.why_not = f"{len(recent)} rates in {min(span, rule.window)} steps; needs {rule.least} in {rule.window}"
            return
        now = median(recent)
        best = max(now, self._best.values[-1] if len(self._best) else 0.0)
        self._best.add(step, best)
        if now >= rule.ratio * best:
            self._low_since = None
        elif self._low_since is None:
            self._low_since = step
        since = step if self._low_since is None else self._low_since
        yield Judgement(
            is_violated=now < rule.ratio * best and step - since >= rule.window // 2,
            text=f"{now:.4g} a second over the last {rule.window} steps, {now / best:.0%} of the best {best:.4g}",
            numbers={"median": now, "best": best},
        )

    def roll_back(self, step: int) -> None:
        self._seen.roll_back(step)
        self._best.roll_back(step)
        if self._low_since is not None and self._low_since > step:
            self._low_since = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataStall(Rule):
    """Steps wait for data for more than `share` of their time, by the median of the last `window` steps."""

    READS = (StepRecord,)
    NEEDS = "data_wait_seconds and step_seconds of steps"
    share: float = 0.3
    window: int = 50
    persistence: int = 3

    def watch(self, facts: Facts) -> RuleState[StepRecord]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _DataStall(self)


class _DataStall(RuleState[StepRecord]):
    def __init__(self, rule: DataStall) -> None:
        self._rule, self._seen = rule, History(max(MOST_OBSERVATIONS, 2 * rule.window))

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        if record.data_wait_seconds is None or not record.step_seconds:
            return
        rule = self._rule
        self._seen.add(record.step, record.data_wait_seconds / record.step_seconds)
        recent = self._seen.last(rule.window)
        if len(recent) < LEAST_OBSERVATIONS:
            self.why_not = f"{len(recent)} steps; needs {LEAST_OBSERVATIONS}"
            return
        now = median(recent)
        yield Judgement(
            is_violated=now > rule.share,
            text=f"{now:.0%} of a step is waiting for data, over the last {rule.window} steps",
            numbers={"share": now},
        )

    def roll_back(self, step: int) -> None:
        self._seen.roll_back(step)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutlier(Rule):
    """More than `n_outliers` steps took longer than the mean plus `stddev` standard deviations of all steps.

    Mean and standard deviation are those of all steps so far. Source: SageMaker Developer Guide, StepOutlier
    (there `stddev` is 5; in smdebug-rulesconfig 1.0.1 it is 3). A few long steps raise both the mean and the
    standard deviation. In the robust profile (`ROBUST`), the rule therefore works differently:

    - It uses the median and the median absolute deviation (MAD).
    - It skips the first step after each start of the processes.
    - An outlier must take at least twice the median.
    - An outlier must exceed the median by at least the time that other processes may take
      (`min_excess_seconds`), which is a few time slices of the Linux scheduler. A slice is
      0.7 ms * (1 + log2(n)) on n cores, and n counts as at most 8, so a slice is at most 2.8 ms
      (kernel/sched/fair.c).
    - The outliers must cost a minimum of time (`cost_share`).

    The last two conditions are needed because steps of milliseconds vary on a shared machine.

    Attributes:
        is_robust: whether to use median and MAD in place of mean and standard deviation.
        share: the outliers must also be more than this share of all steps, because in a long run `n_outliers`
            steps exceed the limit by chance.
        cost_share: the seconds by which the outliers exceed the limit must add up to at least this share of the
            time of all steps.
        min_excess_seconds: least seconds by which an outlier exceeds the median; used only if `is_robust`.
    """

    ORIGIN = Origin.PROFILER
    READS = (Start, StepRecord)
    NEEDS = "step_seconds of steps"
    ROBUST: ClassVar[Mapping[str, Any]] = {
        "is_robust": True,
        "share": 0.01,
        "cost_share": 0.05,
        "min_excess_seconds": 0.01,
    }
    stddev: float = 5.0
    mode: str | None = None
    n_outliers: int = 10
    is_robust: bool = False
    share: float = 0.0
    cost_share: float = 0.0
    min_excess_seconds: float = 0.0

    def watch(self, facts: Facts) -> RuleState[Record]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _StepOutlier(self)

    def robust_limit(self, seconds: Sequence[float]) -> float:
        """Return the duration in seconds above which a step is an outlier.

        It is the largest of three: the median plus `stddev` standard deviations, twice the median, and the median
        plus `min_excess_seconds`. One standard deviation counts as 1.4826 times the MAD. Worked: steps of 9, 10 and
        11 s in equal numbers have the median 10 and the MAD 1. With `stddev` 5, the first value is
        10 + 5 * 1.4826 = 17.4 s. Twice the median is 20 s, so the result is 20 s.
        """
        middle, mad = median_and_mad(seconds)
        return middle + max(self.stddev * SIGMA_PER_MAD * mad, middle, self.min_excess_seconds)


class _StepOutlier(RuleState[Record]):
    _RECENT = 500  # steps that the median is taken of
    _LEAST = (
        100  # steps that a mean is taken of at least; as in awslabs/sagemaker-debugger at 31d3641
    )

    def __init__(self, rule: StepOutlier) -> None:
        self._rule, self._outliers, self._cost = rule, History(), History()
        self._seen, self._sums, self._squares = (History(MOST_OBSERVATIONS) for _ in range(3))
        self._is_first = True

    def see(self, record: Record) -> Iterator[Judgement]:
        if isinstance(record, Start):
            self._is_first = True
        elif isinstance(record, StepRecord) and record.step_seconds is not None:
            is_first, self._is_first = self._is_first, False
            if not (is_first and self._rule.is_robust):
                yield from self._judge(record.step, record.step_seconds)

    def _judge(self, step: int, seconds: float) -> Iterator[Judgement]:
        rule = self._rule
        count = self._num_seen
        least = LEAST_OBSERVATIONS if rule.is_robust else self._LEAST
        limit = self._limit() if count >= least else math.inf
        self._add(step, seconds)
        if count < least:
            self.why_not = f"{count + 1} steps; needs more than {least}"
            return
        cost = self._cost.values[-1] if len(self._cost) else 0.0
        if seconds > limit:
            self._outliers.add(step, seconds)
            cost += seconds - limit
            self._cost.add(step, cost)
        is_often = len(self._outliers) > max(rule.n_outliers, rule.share * self._num_seen)
        yield Judgement(
            is_violated=is_often and cost >= rule.cost_share * self._sums.values[-1],
            text=f"{len(self._outliers)} steps were outliers, the last took {self._last():.3g} s",
            numbers={"outliers": len(self._outliers), "limit_seconds": limit},
        )

    @property
    def _num_seen(self) -> int:
        return len(self._seen) + self._seen.num_dropped

    def _limit(self) -> float:
        if self._rule.is_robust:
            return self._rule.robust_limit(self._seen.values[-self._RECENT :])
        mean = self._sums.values[-1] / self._num_seen
        variance = self._squares.values[-1] / self._num_seen - mean**2
        return mean + self._rule.stddev * math.sqrt(max(0.0, variance))

    def _add(self, step: int, seconds: float) -> None:
        is_first = not len(self._seen)
        self._sums.add(step, seconds + (0.0 if is_first else self._sums.values[-1]))
        self._squares.add(step, seconds**2 + (0.0 if is_first else self._squares.values[-1]))
        self._seen.add(step, seconds)

    def _last(self) -> float:
        return self._outliers.values[-1] if len(self._outliers) else 0.0

    def roll_back(self, step: int) -> None:
        for each in (self._seen, self._outliers, self._sums, self._squares, self._cost):
            each.roll_back(step)
        if not len(self._seen):
            self._outliers, self._cost = History(), History()


@dataclass(frozen=True, slots=True, kw_only=True)
class OverallFrameworkMetrics(Rule):
    """Shares of the step time that the parts of a step take. This rule never reports an issue.

    The parts are data wait, forward pass, backward pass and optimizer. Source: SageMaker Developer Guide,
    OverallFrameworkMetrics.
    """

    ORIGIN = Origin.PROFILER
    READS = (StepRecord,)
    NEEDS = "step_seconds and the seconds of its parts"

    def watch(self, facts: Facts) -> RuleState[StepRecord]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _OverallFrameworkMetrics()


class _OverallFrameworkMetrics(RuleState[StepRecord]):
    _PARTS = ("data_wait", "forward", "backward", "optimizer")

    def __init__(self) -> None:
        self._total = 0.0
        self._parts = dict.fromkeys(self._PARTS, 0.0)

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        parts = {name: getattr(record, f"{name}_seconds") for name in self._PARTS}
        if not record.step_seconds or all(value is None for value in parts.values()):
            return
        self._total += record.step_seconds
        for name, value in parts.items():
            self._parts[name] += value or 0.0
        yield HEALTHY

    def summary(self) -> Mapping[str, float]:
        if not self._total or math.isinf(self._total):
            return {}
        return {f"{name} %": 100 * value / self._total for name, value in self._parts.items()}


RULES: tuple[type[Rule], ...] = (
    ThroughputRegression,
    DataStall,
    StepOutlier,
    OverallFrameworkMetrics,
)
