"""Rules on hosts: resource use, and growing memory."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from trainyard.rules.records import Facts, HostSample
from trainyard.rules.rule import HEALTHY, Judgement, Origin, Rule, RuleState

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class OverallSystemUsage(Rule):
    """Means and 95th percentiles of the hosts' resource use, as a summary. The rule never finds an issue.

    Source: SageMaker Developer Guide.
    """

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    NEEDS = "samples of the host"

    def watch(self, facts: Facts) -> RuleState[HostSample]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _OverallSystemUsage()


class _OverallSystemUsage(RuleState[HostSample]):
    def __init__(self) -> None:
        self._seen: dict[str, _Percentages] = {}

    def see(self, record: HostSample) -> Iterator[Judgement]:
        own = {
            "cpu": record.cpu_percent,
            "io wait": record.io_wait_percent,
            "gpu": record.gpu_percent,
        }
        known = {k: each for k, each in own.items() if each is not None and math.isfinite(each)}
        for key, value in known.items():
            self._seen.setdefault(key, _Percentages()).add(value)
        if known:
            yield HEALTHY

    def summary(self) -> Mapping[str, float]:
        found = {}
        for key, seen in self._seen.items():
            found[f"{key} mean %"], found[f"{key} p95 %"] = seen.mean, seen.quantile(0.95)
        return found


class _Percentages:
    """Numbers from 0 to 100, counted in steps of 0.1: constant memory for any number of samples."""

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts, self._sum = array("q", [0] * 1001), 0.0

    def add(self, value: float) -> None:
        self._counts[min(1000, max(0, round(10 * value)))] += 1
        self._sum += value

    @property
    def mean(self) -> float:
        return self._sum / sum(self._counts)

    def quantile(self, share: float) -> float:
        """Return the same quantile as `series.quantile`, but of values rounded to 0.1.

        Worked: the 0.95 quantile of 0 ... 100 is 95.
        """
        ends = list(accumulate(self._counts))
        place = share * (ends[-1] - 1)
        low, high = (bisect_right(ends, at) / 10 for at in (math.floor(place), math.ceil(place)))
        return low + (high - low) * (place % 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataloader(Rule):
    """The number of data-loading processes, in percent of the cores, is outside `min_threshold` to `max_threshold`.

    Source: AWS's package smdebug-rulesconfig 1.0.1 (70, 200); the rule is not documented. A run without worker
    processes loads its data in the training process. This rule does not evaluate such a run. `DataStall`
    reports slow loading there.
    """

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    NEEDS = "samples of the host with num_cores and num_loader_workers above 0"
    ON_REQUEST = (
        "what counts is whether steps wait for data (DataStall), not how many processes load it"
    )
    min_threshold: float = 70.0
    max_threshold: float = 200.0
    patience: int = 10

    def watch(self, facts: Facts) -> RuleState[HostSample]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _Dataloader(self)


class _Dataloader(RuleState[HostSample]):
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
class MemoryGrowth(Rule):
    """Memory grows window by window and would reach its limit, or an allocation had to be repeated or failed.

    The rule takes the means of `num_windows` consecutive windows of `window` samples. Each mean must be above
    the one before. The growth is the last mean minus the first. It must also be large enough:

    - If the limit is known, the growth must exceed `min_growth` times the first mean. The memory that is left
      must be at most `horizon` times the growth.
    - If the limit is unknown, the growth must exceed `unlimited_growth` times the first mean.

    Worked: the limit is 16 GiB, and the means grow from 4 to 5 GiB. The other 11 GiB are 11 times this growth.
    That is within the default horizon of 20, so the rule is violated.
    """

    READS = (HostSample,)
    NEEDS = "samples of the host: memory_bytes of the processes, or memory of its GPUs"
    window: int = 60
    num_windows: int = 6
    min_growth: float = 0.05
    unlimited_growth: float = 0.5
    horizon: float = 20.0

    def watch(self, facts: Facts) -> RuleState[HostSample]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _MemoryGrowth(self)


class _MemoryGrowth(RuleState[HostSample]):
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
            until = f"the limit of {limit / 2**30:.3g} GiB is {times:.3g} times this growth away"
        return Judgement(
            key=key,
            is_violated=is_violated,
            text=f"from {first / 2**30:.3g} to {last / 2**30:.3g} GiB over {rule.num_windows * rule.window} samples; "
            f"{until}",
            numbers={"first_bytes": first, "last_bytes": last},
        )


RULES: tuple[type[Rule], ...] = (
    OverallSystemUsage,
    Dataloader,
    MemoryGrowth,
)
