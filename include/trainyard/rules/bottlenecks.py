"""Rules on hosts whose GPUs wait for another resource, or are underused.

Hosts are sampled every 500 ms; `patience` and `window` count samples. Sources: SageMaker Developer
Guide, "List of Debugger Built-in ProfilerRules"; for details that it omits, the former code of the rules
in awslabs/sagemaker-debugger (smdebug/profiler/analysis/rules, commit 31d3641), and the defaults of AWS's package
smdebug-rulesconfig (`rulesconfig`).
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.rules.records import Facts, HostSample
from trainyard.rules.rule import Judgement, Origin, Rule, RuleState
from trainyard.rules.series import quantile

if TYPE_CHECKING:
    from collections.abc import Iterator

GPUS = "samples of the host with GPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize(Rule):
    """The 95th percentiles of CPU, GPU and GPU memory are all low: use a larger batch or a smaller instance.

    Documented: 70 % each, patience 100 (rulesconfig 1.0.1: 1000), window 500. The mean over all GPUs counts; AWS's
    code used a single GPU.
    """

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    NEEDS = f"{GPUS}: CPU, GPU utilization and GPU memory"
    cpu_threshold_p95: float = 70.0
    gpu_threshold_p95: float = 70.0
    gpu_memory_threshold_p95: float = 70.0
    patience: int = 100
    window: int = 500

    def watch(self, facts: Facts) -> RuleState[HostSample]:  # noqa: ARG002  # the interface
        """Return the state of this rule before the first record of a training."""
        return _BatchSize(self)


class _BatchSize(RuleState[HostSample]):
    def __init__(self, rule: BatchSize) -> None:
        self._rule = rule
        self._seen: list[tuple[float, float, float]] = []
        self._count = 0

    def see(self, record: HostSample) -> Iterator[Judgement]:
        rule, gpu = self._rule, record.gpu_percent
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
    """Base of the rules that count samples in which another resource is busy while a GPU is not.

    CPU utilization is the mean of all cores; AWS's code required one busy core.
    """

    ORIGIN = Origin.PROFILER
    READS = (HostSample,)
    threshold: float = 50.0


class _Share(RuleState[HostSample]):
    """State of a bottleneck rule: the share of one host's samples that show the bottleneck.

    A sample shows the bottleneck if the value `key` is above `limit` and at least one GPU is below
    `gpu_limit`. The rule is violated if over `threshold` percent of all samples so far show it. The rule is
    first evaluated at sample `patience` + 1.
    """

    def __init__(
        self, threshold: float, patience: int, *, gpu_limit: float, key: str, limit: float
    ) -> None:
        self._threshold, self._patience = threshold, patience
        self._gpu_limit, self._key, self._limit = gpu_limit, key, limit
        self._count = self._held = 0

    def see(self, record: HostSample) -> Iterator[Judgement]:
        busy = getattr(record, self._key)
        gpus = [e.utilization_percent for e in record.gpus if e.utilization_percent is not None]
        if busy is None or not gpus:
            return
        self._count += 1
        self._held += busy > self._limit and min(gpus) < self._gpu_limit
        if self._count <= self._patience:
            self.why_not = f"{self._count} samples; needs more than {self._patience}"
            return
        percent = 100 * self._held / self._count
        yield Judgement(
            key=record.host,
            is_violated=percent > self._threshold,
            text=f"in {percent:.0f} % of the samples {self._key.replace('_', ' ')} was above {self._limit:g} and "
            f"a GPU below {self._gpu_limit:g} %",
            numbers={"percent": percent},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUBottleneck(_Bottleneck):
    """The CPU is above `cpu_threshold` and a GPU below `gpu_threshold` in over `threshold` percent of the samples.

    The documented defaults are `threshold` 50, `cpu_threshold` 90, `gpu_threshold` 10 and `patience` 100 (1000
    in rulesconfig 1.0.1). In the robust profile, `patience` is 1000, because the start of a job is CPU-bound.
    """

    NEEDS = f"{GPUS}: CPU and GPU utilization"
    ROBUST: ClassVar[Mapping[str, Any]] = {"patience": 1000}
    gpu_threshold: float = 10.0
    cpu_threshold: float = 90.0
    patience: int = 100

    def watch(self, facts: Facts) -> RuleState[HostSample]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _Share(
            self.threshold,
            self.patience,
            gpu_limit=self.gpu_threshold,
            key="cpu_percent",
            limit=self.cpu_threshold,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IOBottleneck(_Bottleneck):
    """In over `threshold` % of the samples, I/O wait is above `io_threshold` and a GPU below `gpu_threshold`.

    `io_threshold` is in percent, and `gpu_threshold` is the utilization of a GPU in percent. The documented
    defaults are `threshold` 50, `io_threshold` 50, `gpu_threshold` 70 (10 in rulesconfig 1.0.1) and `patience`
    1000. The rule needs the training's own samples of the host, because CloudWatch has no metric for I/O wait.
    """

    NEEDS = f"{GPUS}: I/O wait and GPU utilization"
    gpu_threshold: float = 70.0
    io_threshold: float = 50.0
    patience: int = 1000

    def watch(self, facts: Facts) -> RuleState[HostSample]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _Share(
            self.threshold,
            self.patience,
            gpu_limit=self.gpu_threshold,
            key="io_wait_percent",
            limit=self.io_threshold,
        )


RULES: tuple[type[Rule], ...] = (
    BatchSize,
    CPUBottleneck,
    IOBottleneck,
)
