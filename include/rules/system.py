"""Rules on hosts: processors, GPUs, memory, input and output.

The profiler's rules take samples every 500 ms; `patience` and `window` count samples. Sources: SageMaker Developer
Guide, "List of Debugger Built-in ProfilerRules", and for what the text leaves open the rules' code in smdebug 1.0.12
(smdebug/profiler/analysis/rules).
"""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from include.rules.records import Facts, GpuSample, HostSample
from include.rules.rule import HEALTHY, Judgement, Origin, Rule, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GPUS = "samples of the host with GPUs"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile, linear between neighbours. Worked: the 0.95 quantile of 0 ... 100 is 95."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _mean_utilization(gpus: Sequence[GpuSample]) -> float | None:
    known = [each.utilization_percent for each in gpus if each.utilization_percent is not None]
    return fmean(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize(Rule):
    """The 95th percentiles of CPU, GPU and GPU memory are all low: a larger batch, or a smaller instance, would do.

    Documented: 70, 70, 70 %, patience 100 (rulesconfig 1.0.1: 1000), window 500.
    """

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    NEEDS = f"{_GPUS}: CPU, GPU utilisation and GPU memory"
    cpu_threshold_p95: float = 70.0
    gpu_threshold_p95: float = 70.0
    gpu_memory_threshold_p95: float = 70.0
    patience: int = 100
    window: int = 500

    def watch(self, facts: Facts) -> Watch[HostSample]:  # noqa: ARG002  # the interface
        """Return a new state."""
        return _BatchSize(self)


class _BatchSize(Watch[HostSample]):
    def __init__(self, rule: BatchSize) -> None:
        self._rule = rule
        self._seen: list[tuple[float, float, float]] = []
        self._count = 0

    def see(self, record: HostSample) -> Iterator[Judgement]:
        rule, gpu = self._rule, _mean_utilization(record.gpus)
        memory = [e.memory_percent for e in record.gpus if e.memory_percent is not None]
        if record.cpu_percent is None or gpu is None or not memory:
            return
        self._seen.append((record.cpu_percent, gpu, fmean(memory)))
        del self._seen[: -rule.window]
        self._count += 1
        if self._count <= rule.patience or len(self._seen) < rule.window:
            self.why_not = f"{self._count} samples; needs {max(rule.patience + 1, rule.window)}"
            return
        limits = (rule.cpu_threshold_p95, rule.gpu_threshold_p95, rule.gpu_memory_threshold_p95)
        found = [quantile(column, 0.95) for column in zip(*self._seen, strict=True)]
        yield Judgement(
            key=record.host,
            is_violated=all(value < limit for value, limit in zip(found, limits, strict=True)),
            text="95 % of the time below: CPU {:.0f} %, GPU {:.0f} %, GPU memory {:.0f} %".format(
                *found
            ),
            numbers=dict(zip(("cpu_p95", "gpu_p95", "gpu_memory_p95"), found, strict=True)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bottleneck(Rule):
    """Base of the rules that count samples in which something is busy while the GPUs are not."""

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    threshold: float = 50.0


class _Share(Watch[HostSample]):
    """The share of samples, of all after the first `patience`, in which the condition holds."""

    def __init__(
        self, threshold: float, patience: int, *, gpu_limit: float, key: str, limit: float
    ) -> None:
        self._threshold, self._patience = threshold, patience
        self._gpu_limit, self._key, self._limit = gpu_limit, key, limit
        self._count = self._held = 0

    def see(self, record: HostSample) -> Iterator[Judgement]:
        busy, gpu = getattr(record, self._key), _mean_utilization(record.gpus)
        if busy is None or gpu is None:
            return
        self._count += 1
        if self._count <= self._patience:
            self.why_not = f"{self._count} samples; needs more than {self._patience}"
            return
        self._held += busy > self._limit and gpu < self._gpu_limit
        percent = 100 * self._held / (self._count - self._patience)
        yield Judgement(
            key=record.host,
            is_violated=percent > self._threshold,
            text=f"in {percent:.0f} % of the samples {self._key.replace('_', ' ')} was above {self._limit:g} and the "
            f"GPUs below {self._gpu_limit:g} %",
            numbers={"percent": percent},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUBottleneck(_Bottleneck):
    """The CPU is above `cpu_threshold` and the GPUs below `gpu_threshold` in over `threshold` percent of the samples.

    Documented: 50, 90, 10, patience 100 (rulesconfig 1.0.1: 1000). The robust profile takes 1000: the start is like
    that.
    """

    NEEDS = f"{_GPUS}: CPU and GPU utilisation"
    ROBUST: ClassVar[Mapping[str, Any]] = {"patience": 1000}
    gpu_threshold: float = 10.0
    cpu_threshold: float = 90.0
    patience: int = 100

    def watch(self, facts: Facts) -> Watch[HostSample]:  # noqa: ARG002
        """Return a new state."""
        return _Share(
            self.threshold,
            self.patience,
            gpu_limit=self.gpu_threshold,
            key="cpu_percent",
            limit=self.cpu_threshold,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IOBottleneck(_Bottleneck):
    """I/O wait is above `io_threshold` and the GPUs below `gpu_threshold` in over `threshold` percent of the samples.

    Documented: 50, 50, 70 (rulesconfig 1.0.1: 10), patience 1000. CloudWatch has no I/O wait.
    """

    NEEDS = f"{_GPUS}: I/O wait and GPU utilisation"
    gpu_threshold: float = 70.0
    io_threshold: float = 50.0
    patience: int = 1000

    def watch(self, facts: Facts) -> Watch[HostSample]:  # noqa: ARG002
        """Return a new state."""
        return _Share(
            self.threshold,
            self.patience,
            gpu_limit=self.gpu_threshold,
            key="io_wait_percent",
            limit=self.io_threshold,
        )


class _PerGpu(Watch[HostSample]):
    """Keeps the newest `most` values of each GPU of each host, and how many there were."""

    def __init__(self, key: str, most: int) -> None:
        self._key, self._most = key, most
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
                yield from self.judge(place)

    def judge(self, place: tuple[str, int]) -> Iterator[Judgement]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUMemoryIncrease(Rule):
    """The moving average of a GPU's used memory (percent) rose by more than `increase` points against the one before.

    Documented: 10, patience 100, window 500 (rulesconfig 1.0.1: 5, 1000, 10). `The one before` is that of one sample
    earlier (smdebug's code), so that 500 samples cannot rise by 10 points: the documented defaults never fire. The
    robust profile compares windows that do not overlap.

    Attributes:
        stride: samples between the two averages; None for 1.
    """

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    NEEDS = f"{_GPUS}: used memory in percent"
    ROBUST: ClassVar[Mapping[str, Any]] = {"stride": 500, "patience": 1000}
    increase: float = 10.0
    patience: int = 100
    window: int = 500
    stride: int = 1

    def watch(self, facts: Facts) -> Watch[HostSample]:  # noqa: ARG002
        """Return a new state."""
        return _GPUMemoryIncrease(self)


class _GPUMemoryIncrease(_PerGpu):
    def __init__(self, rule: GPUMemoryIncrease) -> None:
        super().__init__("memory_percent", rule.window + rule.stride)
        self._rule = rule

    def judge(self, place: tuple[str, int]) -> Iterator[Judgement]:
        rule, values = self._rule, self.values[place]
        needed = max(rule.window + rule.stride, rule.patience + 1)
        if self.counts[place] < needed:
            self.why_not = f"{self.counts[place]} samples; needs {needed}"
            return
        before, now = fmean(values[: rule.window]), fmean(values[-rule.window :])
        yield Judgement(
            key=f"{place[0]} gpu {place[1]}",
            is_violated=now - before > rule.increase,
            text=f"used memory rose from {before:.1f} to {now:.1f} %, by averages of {rule.window} samples",
            numbers={"before": before, "now": now},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LowGPUUtilization(Rule):
    """A GPU's 95th percentile is below `threshold_p95`, or its 5th below `threshold_p5`.

    That is too little work, or work that comes and goes. Documented: 70, 10, patience 1000, window 500. `Utilisation`
    only says that some kernel ran.
    """

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    NEEDS = f"{_GPUS}: utilisation"
    threshold_p95: float = 70.0
    threshold_p5: float = 10.0
    patience: int = 1000
    window: int = 500

    def watch(self, facts: Facts) -> Watch[HostSample]:  # noqa: ARG002
        """Return a new state."""
        return _LowGPUUtilization(self)


class _LowGPUUtilization(_PerGpu):
    def __init__(self, rule: LowGPUUtilization) -> None:
        super().__init__("utilization_percent", rule.window)
        self._rule = rule

    def judge(self, place: tuple[str, int]) -> Iterator[Judgement]:
        rule, values = self._rule, self.values[place]
        needed = max(rule.patience + 1, rule.window)
        if self.counts[place] < needed:
            self.why_not = f"{self.counts[place]} samples; needs {needed}"
            return
        high, low = quantile(values, 0.95), quantile(values, 0.05)
        is_low = high < rule.threshold_p95
        yield Judgement(
            key=f"{place[0]} gpu {place[1]}",
            is_violated=is_low or low < rule.threshold_p5,
            text=f"{'too little work' if is_low else 'fluctuates'}: 5th percentile {low:.0f} %, 95th {high:.0f} %",
            numbers={"p95": high, "p5": low},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancing(Rule):
    """Two GPUs of a host are used so differently that the distance of their histograms is above `threshold`.

    Documented: 0.5, patience 10 (rulesconfig 1.0.1: 1000). The distance is Jensen and Shannon's (the root of the
    divergence, natural logarithm) between histograms of 2 % bins: 0 for equal ones, 0.83 where they have nothing in
    common. Weak in data parallelism, where ranks wait for each other busily: see `Straggler`. The robust profile takes
    1000.
    """

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    NEEDS = f"{_GPUS} (two at least): utilisation"
    ROBUST: ClassVar[Mapping[str, Any]] = {"patience": 1000}
    threshold: float = 0.5
    patience: int = 10

    def watch(self, facts: Facts) -> Watch[HostSample]:  # noqa: ARG002
        """Return a new state."""
        return _LoadBalancing(self)


class _LoadBalancing(Watch[HostSample]):
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
                text=f"their utilisation differs by a distance of {distance:.2f}",
                numbers={"distance": distance},
            )


def jensen_shannon_distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the root of the divergence between two histograms (Endres and Schindelin 2003), natural logarithm.

    Worked: (1, 0) and (0, 1) are sqrt(ln 2) = 0.8326 apart.
    """
    total_one, total_other = sum(one), sum(other)
    divergence = 0.0
    for a, b in zip(one, other, strict=True):
        p, q = a / total_one, b / total_other
        mean = (p + q) / 2
        divergence += p * math.log(p / mean) / 2 if p else 0.0
        divergence += q * math.log(q / mean) / 2 if q else 0.0
    return math.sqrt(max(0.0, divergence))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataloader(Rule):
    """The processes that load data are below `min_threshold` percent of the host's cores, or above `max_threshold`.

    In rulesconfig 1.0.1 and in no documentation (70, 200). A run that loads in its own process (no workers) is not
    judged: whether that is too slow is `DataStall`'s to say.
    """

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    NEEDS = "samples of the host with num_cores and num_loader_workers above 0"
    ON_REQUEST = (
        "what counts is whether steps wait for data (DataStall), not how many processes load them"
    )
    min_threshold: float = 70.0
    max_threshold: float = 200.0
    patience: int = 10

    def watch(self, facts: Facts) -> Watch[HostSample]:  # noqa: ARG002
        """Return a new state."""
        return _Dataloader(self)


class _Dataloader(Watch[HostSample]):
    def __init__(self, rule: Dataloader) -> None:
        self._rule, self._count = rule, 0

    def see(self, record: HostSample) -> Iterator[Judgement]:
        if not record.num_cores or not record.num_loader_workers:
            return
        self._count += 1
        if self._count <= self._rule.patience:
            self.why_not = f"{self._count} samples; needs more than {self._rule.patience}"
            return
        percent = 100 * record.num_loader_workers / record.num_cores
        yield Judgement(
            key=record.host,
            is_violated=not self._rule.min_threshold <= percent <= self._rule.max_threshold,
            text=f"{record.num_loader_workers} processes load data on {record.num_cores} cores",
            numbers={"percent": percent},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OverallSystemUsage(Rule):
    """Never an issue: means and 95th percentiles of what the hosts used. Source: SageMaker Developer Guide."""

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    NEEDS = "samples of the host"

    def watch(self, facts: Facts) -> Watch[HostSample]:  # noqa: ARG002
        """Return a new state."""
        return _OverallSystemUsage()


class _OverallSystemUsage(Watch[HostSample]):
    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}

    def see(self, record: HostSample) -> Iterator[Judgement]:
        own = {
            "cpu": record.cpu_percent,
            "io wait": record.io_wait_percent,
            "gpu": _mean_utilization(record.gpus),
        }
        known = {key: value for key, value in own.items() if value is not None}
        for key, value in known.items():
            self._seen.setdefault(key, []).append(value)
        if known:
            yield HEALTHY

    def summary(self) -> Mapping[str, float]:
        found = {}
        for key, values in self._seen.items():
            found[f"{key} mean %"], found[f"{key} p95 %"] = fmean(values), quantile(values, 0.95)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGrowth(Rule):
    """Memory grows window by window and would reach its limit, or an allocation had to be repeated or failed.

    The means of `num_windows` windows of `window` samples rise one after the other, by `min_growth` of the first in
    all; with a known limit the line through them reaches it within `horizon` times the time it was seen growing, with
    none the growth alone counts, `unlimited_growth`. Worked: 6 windows of 60 samples are 3 minutes; from 4 to 5 GiB of
    16 in 3 minutes is 1 GiB each 3, full after 33 minutes, 11 times as long.
    """

    READS = (HostSample,)
    NEEDS = "samples of the host: memory_bytes of the processes, or memory of its GPUs"
    window: int = 60
    num_windows: int = 6
    min_growth: float = 0.05
    unlimited_growth: float = 0.5
    horizon: float = 20.0

    def watch(self, facts: Facts) -> Watch[HostSample]:  # noqa: ARG002
        """Return a new state."""
        return _MemoryGrowth(self)


class _MemoryGrowth(Watch[HostSample]):
    def __init__(self, rule: MemoryGrowth) -> None:
        self._rule = rule
        self._open: dict[str, list[float]] = {}
        self._means: dict[str, list[float]] = {}
        self._failures: dict[str, int] = {}

    def see(self, record: HostSample) -> Iterator[Judgement]:
        if record.memory_bytes is not None:
            yield from self._grow(record.host, record.memory_bytes, record.memory_limit_bytes)
        for number, gpu in enumerate(record.gpus):
            key = f"{record.host} gpu {number}"
            if gpu.memory_bytes is not None:
                yield from self._grow(key, gpu.memory_bytes, gpu.memory_limit_bytes)
            failures = (gpu.num_allocation_retries or 0) + (gpu.num_out_of_memory or 0)
            if failures > self._failures.get(key, 0):
                self._failures[key] = failures
                yield Judgement(
                    key=f"{key} allocation",
                    is_violated=True,
                    text=f"{failures} allocations had to be repeated or failed",
                    numbers={"failures": failures},
                )

    def _grow(self, key: str, size: float, limit: float | None) -> Iterator[Judgement]:
        rule = self._rule
        own = self._open.setdefault(key, [])
        own.append(size)
        if len(own) < rule.window:
            self.why_not = (
                f"{len(own)} samples of a window of {rule.window}; needs {rule.num_windows} windows"
            )
            return
        means = self._means.setdefault(key, [])
        means.append(fmean(own))
        del means[: -rule.num_windows]
        own.clear()
        if len(means) == rule.num_windows:
            yield self._judge(key, means, limit)

    def _judge(self, key: str, means: list[float], limit: float | None) -> Judgement:
        rule, first, last = self._rule, means[0], means[-1]
        is_rising = all(later > before for before, later in pairwise(means))
        growth = last - first
        if limit is None:
            is_violated = is_rising and growth > rule.unlimited_growth * first
            until = "no limit is known"
        else:
            times = (limit - last) / growth if growth > 0 else math.inf
            is_violated = is_rising and growth > rule.min_growth * first and times <= rule.horizon
            until = f"the limit of {limit / 2**30:.3g} GiB is {times:.3g} times that away"
        return Judgement(
            key=key,
            is_violated=is_violated,
            text=f"from {first / 2**30:.3g} to {last / 2**30:.3g} GiB over {rule.num_windows * rule.window} samples; "
            f"{until}",
            numbers={"first_bytes": first, "last_bytes": last},
        )


RULES: tuple[type[Rule], ...] = (
    BatchSize,
    CPUBottleneck,
    GPUMemoryIncrease,
    IOBottleneck,
    LoadBalancing,
    LowGPUUtilization,
    OverallSystemUsage,
    Dataloader,
    MemoryGrowth,
)
