"""Rules on single GPUs: how busy they are, how evenly, and how full.

Hosts are sampled every 500 ms; `patience` and `window` count samples. Sources: SageMaker Developer
Guide, "List of Debugger Built-in ProfilerRules"; for details that it omits, the former code of the rules
in awslabs/sagemaker-debugger (smdebug/profiler/analysis/rules, commit 31d3641), and the defaults of AWS's package
smdebug-rulesconfig (`rulesconfig`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.rules.bottlenecks import GPUS
from trainyard.rules.records import Facts, HostSample
from trainyard.rules.rule import Judgement, Origin, Rule, RuleState
from trainyard.rules.series import quantile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class _PerGpu(RuleState[HostSample]):
    """State with the newest `most` values of each GPU of each host.

    A GPU is evaluated at each of its values, beginning with value number `needed`.
    """

    def __init__(self, key: str, most: int, *, needed: int) -> None:
        self._key, self._most, self._needed = key, most, needed
        self.values: dict[tuple[str, int], list[float]] = {}
        self.counts: dict[tuple[str, int], int] = {}

    def see(self, record: HostSample) -> Iterator[Judgement]:
        for number, gpu in enumerate(record.gpus):
            value = getattr(gpu, self._key)
            if value is not None:
                place = record.host, number
                self.values.setdefault(place, []).append(value)
                del self.values[place][: -self._most]
                self.counts[place] = self.counts.get(place, 0) + 1
                if self.counts[place] >= self._needed:
                    yield self.judge(place)
                else:
                    self.why_not = f"{self.counts[place]} samples; needs {self._needed}"

    def judge(self, place: tuple[str, int]) -> Judgement:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUMemoryIncrease(Rule):
    """The moving average of a GPU's used memory, in percent, rose by more than `increase` percentage points.

    The rule compares two averages of `window` samples each. Documented: increase 10, patience 100, window 500
    (rulesconfig 1.0.1: 5, 1000 and 10). In smdebug's code the older average ends one sample before the newer
    one. An average of 500 samples cannot rise by 10 points in one sample, so the documented defaults never
    fire. In the robust profile, `stride` is 500, so the two windows do not overlap.

    Attributes:
        stride: number of samples from the end of the older window to the end of the newer one.
    """

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    NEEDS = f"{GPUS}: used memory in percent"
    ROBUST: ClassVar[Mapping[str, Any]] = {"stride": 500, "patience": 1000}
    increase: float = 10.0
    patience: int = 100
    window: int = 500
    stride: int = 1

    def watch(self, facts: Facts) -> RuleState[HostSample]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _GPUMemoryIncrease(self)


class _GPUMemoryIncrease(_PerGpu):
    def __init__(self, rule: GPUMemoryIncrease) -> None:
        most = rule.window + rule.stride
        super().__init__("memory_percent", most, needed=max(most, rule.patience + 1))
        self._rule = rule

    def judge(self, place: tuple[str, int]) -> Judgement:
        rule, values = self._rule, self.values[place]
        before, now = fmean(values[: rule.window]), fmean(values[-rule.window :])
        return Judgement(
            key=f"{place[0]} gpu {place[1]}",
            is_violated=now - before > rule.increase,
            text=f"used memory rose from {before:.1f} to {now:.1f} %, by averages of {rule.window} samples",
            numbers={"before": before, "now": now},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LowGPUUtilization(Rule):
    """A GPU's 95th percentile of utilization is below `threshold_p95`, or its 5th percentile below `threshold_p5`.

    Either the GPU has too little work, or its work is irregular. Documented defaults: threshold_p95 70,
    threshold_p5 10, patience 1000, window 500. Utilization is the share of time in which any kernel ran, not
    the share of the GPU in use.
    """

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    NEEDS = f"{GPUS}: utilization"
    threshold_p95: float = 70.0
    threshold_p5: float = 10.0
    patience: int = 1000
    window: int = 500

    def watch(self, facts: Facts) -> RuleState[HostSample]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _LowGPUUtilization(self)


class _LowGPUUtilization(_PerGpu):
    def __init__(self, rule: LowGPUUtilization) -> None:
        needed = max(rule.patience + 1, rule.window)
        super().__init__("utilization_percent", rule.window, needed=needed)
        self._rule = rule

    def judge(self, place: tuple[str, int]) -> Judgement:
        rule, values = self._rule, self.values[place]
        high, low = quantile(values, 0.95), quantile(values, 0.05)
        is_low = high < rule.threshold_p95
        return Judgement(
            key=f"{place[0]} gpu {place[1]}",
            is_violated=is_low or low < rule.threshold_p5,
            text=f"{'too little work' if is_low else 'fluctuates'}: 5th percentile {low:.0f} %, 95th {high:.0f} %",
            numbers={"p95": high, "p5": low},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancing(Rule):
    """Two GPUs of a host are used so differently that the distance of their histograms is above `threshold`.

    The histograms are of the utilization, in bins of 2 %. Their distance is that of Jensen and Shannon, see
    `jensen_shannon_distance`. It is 0 for equal histograms and 0.83 for disjoint ones. Documented: threshold
    0.5, patience 10 (1000 in rulesconfig 1.0.1). In the robust profile (`ROBUST`), `patience` is 1000.

    The rule is weak for data parallelism, because ranks appear busy while they wait for each other. `Straggler`
    finds slow ranks.
    """

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    NEEDS = f"{GPUS} (two at least): utilization"
    ROBUST: ClassVar[Mapping[str, Any]] = {"patience": 1000}
    threshold: float = 0.5
    patience: int = 10

    def watch(self, facts: Facts) -> RuleState[HostSample]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _LoadBalancing(self)


class _LoadBalancing(RuleState[HostSample]):
    _NUM_BINS = 50

    def __init__(self, rule: LoadBalancing) -> None:
        self._rule = rule
        self._bins: dict[str, list[list[int]]] = {}

    def see(self, record: HostSample) -> Iterator[Judgement]:
        values = [each.utilization_percent for each in record.gpus]
        if len(values) < 2 or None in values:
            return
        bins = self._bins.setdefault(record.host, [[0] * self._NUM_BINS for _ in values])
        for own, value in zip(bins, values, strict=True):
            own[min(int((value or 0.0) / 100 * self._NUM_BINS), self._NUM_BINS - 1)] += 1
        count = sum(bins[0])
        if count <= self._rule.patience:
            self.why_not = f"{count} samples; needs more than {self._rule.patience}"
            return
        for one, other in combinations(range(len(bins)), 2):
            distance = jensen_shannon_distance(bins[one], bins[other])
            yield Judgement(
                key=f"{record.host} gpu {one} and {other}",
                is_violated=distance > self._rule.threshold,
                text=f"their utilization differs by a distance of {distance:.2f}",
                numbers={"distance": distance},
            )


def jensen_shannon_distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the Jensen-Shannon distance of two histograms: the root of their divergence, with natural logarithms.

    Source: Endres and Schindelin 2003. Worked: (1, 0) and (0, 1) are sqrt(ln 2) = 0.8326 apart.
    """
    total_one, total_other = sum(one), sum(other)
    divergence = 0.0
    for a, b in zip(one, other, strict=True):
        p, q = a / total_one, b / total_other
        mean = (p + q) / 2
        divergence += p * math.log(p / mean) / 2 if p else 0.0
        divergence += q * math.log(q / mean) / 2 if q else 0.0
    return math.sqrt(max(0.0, divergence))


RULES: tuple[type[Rule], ...] = (
    GPUMemoryIncrease,
    LowGPUUtilization,
    LoadBalancing,
)
