"""Builds records for the rules' tests: short series written down by hand."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from trainyard.rules.records import (
    GRADIENTS,
    GpuSample,
    HostSample,
    StepRecord,
    TensorStatistics,
    Validation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainyard.rules.records import Record


def steps(
    count: int, /, *, every: int = 1, rank: int = 0, **fields: float | Callable[[int], float | None]
) -> list[Record]:
    """Return `count` steps, `every` apart; a field is a number, or a function of the step."""
    return [
        StepRecord(step=step, rank=rank, time=1000.0 + step, **_at(fields, step))
        for step in range(every, every * count + 1, every)
    ]


def validations(losses: Iterable[float], *, every: int = 10) -> list[Record]:
    """Return validation losses, `every` steps apart."""
    return [Validation(step=every * n, loss=loss) for n, loss in enumerate(losses, 1)]


def tensor_steps(
    count: int,
    /,
    *,
    collection: str = GRADIENTS,
    tensor: str = "0.weight",
    **fields: Any,
) -> list[Record]:
    """Return steps with the statistics of one tensor; a field is a value, or a function of the step."""
    return [
        StepRecord(
            step=step,
            time=1000.0 + step,
            loss=1.0,
            tensors={collection: {tensor: TensorStatistics(**_at(fields, step))}},
        )
        for step in range(1, count + 1)
    ]


def samples(
    count: int, /, *, gpus: Callable[[int], tuple[GpuSample, ...]] | None = None, **fields: Any
) -> list[Record]:
    """Return samples of one host, half a second apart, the n-th at step n."""
    return [
        HostSample(step=n, time=1000.0 + n / 2, gpus=gpus(n) if gpus else (), **_at(fields, n))
        for n in range(1, count + 1)
    ]


def noisy(value: float, deviation: float, *, seed: int = 0) -> Callable[[int], float]:
    """Return a function of the step: the value with normal noise, the same for the same step."""

    def at(step: int) -> float:
        draw = random.Random(seed * 100_003 + step)  # noqa: S311  # a series, not a secret
        return value * (1 + deviation * draw.gauss(0, 1))

    return at


def jump(before: float, after: float, *, at: int) -> Callable[[int], float]:
    """Return a function of the step: one value before step `at`, another from there on."""
    return lambda step: after if step >= at else before


def _at(fields: dict[str, Any], step: int) -> dict[str, Any]:
    return {name: value(step) if callable(value) else value for name, value in fields.items()}


def merged(*series: Iterable[Record]) -> list[Record]:
    """Return several series in the order of steps, within a step in the order given."""
    return sorted((record for each in series for record in each), key=lambda record: record.step)
