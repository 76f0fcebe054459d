"""Resource use of each host: processor, GPUs, memory, disk and network over time, and the growth of memory."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from trainyard.rules.records import HostSample, Record
from trainyard.rules.series import quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Point = tuple[float, float]
MOST_POINTS = 400
_LEAST_SAMPLES = 8
MIB, GIB = 2**20, 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A measured resource: how to read it from a sample, and why a host may lack it.

    Attributes:
        reach: value that the chart's axis always includes, in the metric's unit.
    """

    key: str
    title: str
    unit: str
    read: Callable[[HostSample], float | None]
    why_none: str
    reach: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSeries:
    """One metric of one host over time: (seconds since the training's first record, value)."""

    host: str
    points: tuple[Point, ...]
    mean: float
    p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One metric of all hosts.

    Attributes:
        why_none: why some or all hosts lack it; empty if all hosts have it.
    """

    metric: Metric
    series: tuple[UsageSeries, ...]
    why_none: str = ""


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _scaled(value: float | None, size: int) -> float | None:
    return None if value is None else value / size


def _gpu_memory(sample: HostSample) -> float | None:
    return _sum(*(each.memory_bytes for each in sample.gpus))


_NO_GPU = "no GPU samples: no GPU on {hosts}"
METRICS = (
    Metric(
        key="cpu",
        title="Processor",
        unit="CPU used (% of all cores)",
        read=lambda each: each.cpu_percent,
        why_none="no samples of the processor on {hosts}",
        reach=100.0,
    ),
    Metric(
        key="gpu",
        title="GPU",
        unit="GPU busy (% of time, mean of its GPUs)",
        read=lambda each: each.gpu_percent,
        why_none=_NO_GPU,
        reach=100.0,
    ),
    Metric(
        key="memory",
        title="Memory of the training",
        unit="resident memory (GiB)",
        read=lambda each: _scaled(each.memory_bytes, GIB),
        why_none="no samples of memory on {hosts}",
    ),
    Metric(
        key="gpu_memory",
        title="GPU memory",
        unit="GPU memory used (GiB)",
        read=lambda each: _scaled(_gpu_memory(each), GIB),
        why_none=_NO_GPU,
    ),
    Metric(
        key="io_wait",
        title="Waiting for the disk",
        unit="CPU waiting for I/O (% of time)",
        read=lambda each: each.io_wait_percent,
        why_none="no samples of I/O wait on {hosts}",
        reach=5.0,
    ),
    Metric(
        key="disk",
        title="Disk",
        unit="read and written (MiB/s)",
        read=lambda each: _scaled(
            _sum(each.disk_read_bytes_per_second, each.disk_write_bytes_per_second), MIB
        ),
        why_none="no samples of the disk on {hosts}",
        reach=1.0,
    ),
    Metric(
        key="network",
        title="Network",
        unit="received and sent (MiB/s)",
        read=lambda each: _scaled(
            _sum(each.network_receive_bytes_per_second, each.network_send_bytes_per_second), MIB
        ),
        why_none="no samples of the network on {hosts}",
        reach=1.0,
    ),
)


def usages(records: Sequence[Record], *, begin: float) -> tuple[Usage, ...]:
    """Return the values of each metric on all hosts, one `Usage` per metric.

    If some or all hosts lack a metric, `why_none` of its `Usage` has the reason.

    If several ranks of a host took samples, only those of the lowest rank count: each rank samples the whole
    host.

    Args:
        records: the run's records, in order.
        begin: origin of the time axis, epoch seconds.
    """
    samples = by_host(records)
    return tuple(_usage(metric, samples, begin) for metric in METRICS)


def by_host(records: Iterable[Record]) -> Mapping[str, Sequence[HostSample]]:
    """Return each host's samples in order of time.

    Only the samples of one rank per host are used: the lowest rank that took samples.
    """
    found: dict[str, dict[int, list[HostSample]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if isinstance(record, HostSample) and record.time is not None:
            found[record.host][record.rank].append(record)
    return {
        host: sorted(ranks[min(ranks)], key=lambda each: each.time or 0.0)
        for host, ranks in sorted(found.items())
    }


def _usage(metric: Metric, samples: Mapping[str, Sequence[HostSample]], begin: float) -> Usage:
    series, without = [], []
    for host, own in samples.items():
        points = tuple(
            ((each.time or 0.0) - begin, value)
            for each in own
            if (value := metric.read(each)) is not None
        )
        if points:
            series.append(_series(host, points))
        else:
            without.append(host)
    why = metric.why_none.format(hosts=", ".join(without)) if without else ""
    if not samples:
        why = "no samples of the hosts in the training's statistics"
    return Usage(metric=metric, series=tuple(series), why_none=why)


def _series(host: str, points: tuple[Point, ...]) -> UsageSeries:
    values = [value for _, value in points]
    return UsageSeries(
        host=host,
        points=thinned_points(points, most=MOST_POINTS),
        mean=fmean(values),
        p95=quantile(values, 0.95),
    )


def thinned_points(points: tuple[Point, ...], *, most: int) -> tuple[Point, ...]:
    """Return at most `most` points, each the mean of a group of successive points."""
    width = -(-len(points) // most)
    if width <= 1:
        return points
    groups = [points[start : start + width] for start in range(0, len(points), width)]
    return tuple((fmean(x for x, _ in each), fmean(y for _, y in each)) for each in groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """Memory use of one host's training processes, or of one of its GPUs, in bytes.

    Attributes:
        place: the host, or one of its GPUs: `algo-1`, `algo-1 gpu 0`.
        early: mean of the second quarter of the samples; None if there are too few. The first quarter, in
            which a training fills its memory, does not count.
        late: mean of the last quarter; None if there are too few samples.
        limit: memory that is available to the host or GPU, by the last sample with a limit; None if no sample has one.
    """

    place: str
    num_samples: int
    peak: float
    early: float | None
    late: float | None
    limit: float | None

    @property
    def growth(self) -> float | None:
        """Growth `late / early - 1`; None if there are too few samples."""
        if not self.early or self.late is None:
            return None
        return self.late / self.early - 1


def memory_uses(records: Sequence[Record]) -> tuple[MeasuredMemory, ...]:
    """Return the memory use of each observed host and GPU."""
    found = []
    for host, samples in by_host(records).items():
        own = [(each.memory_bytes, each.memory_limit_bytes) for each in samples]
        found.append(_memory_use(host, own))
        for number in range(max((len(each.gpus) for each in samples), default=0)):
            gpus = [each.gpus[number] for each in samples if number < len(each.gpus)]
            pairs = [(each.memory_bytes, each.memory_limit_bytes) for each in gpus]
            found.append(_memory_use(f"{host} gpu {number}", pairs))
    return tuple(each for each in found if each is not None)


def _memory_use(
    place: str, samples: Sequence[tuple[int | None, int | None]]
) -> MeasuredMemory | None:
    sizes = [size for size, _ in samples if size is not None]
    if not sizes:
        return None
    limits = [limit for _, limit in samples if limit is not None]
    quarter = len(sizes) // 4
    is_enough = len(sizes) >= _LEAST_SAMPLES
    return MeasuredMemory(
        place=place,
        num_samples=len(sizes),
        peak=float(max(sizes)),
        early=fmean(sizes[quarter : 2 * quarter]) if is_enough else None,
        late=fmean(sizes[-quarter:]) if is_enough else None,
        limit=float(limits[-1]) if limits else None,
    )
