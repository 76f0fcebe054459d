"""Healthy trainings, drawn from a seed: what they may look like, and nothing that a rule should mind."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainyard.rules.records import (
    ACTIVATIONS,
    GRADIENTS,
    WEIGHTS,
    Checksums,
    Facts,
    GpuSample,
    HostSample,
    Inputs,
    MarkRecord,
    Predictions,
    Record,
    Start,
    StepRecord,
    TensorStatistics,
    Validation,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_TENSORS = {"embedding.weight": 0.02, "block.weight": 0.08, "head.weight": 0.05}


@dataclass(kw_only=True)
class HealthyRun:
    """One training: its curve is a function of the step, whoever takes it and however often.

    Attributes:
        num_ranks: with more than none, each rank has rich records; with none they are those of the log.
        breaks: (last step taken, step resumed at) of each interruption.
    """

    seed: int
    num_ranks: int = 0
    num_breaks: int | None = None
    max_observations: int = 120
    breaks: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = self._draw = random.Random(self.seed)  # noqa: S311  # a series, not a secret
        self.log_interval = draw.choice((1, 5, 10))
        self.max_steps = self.log_interval * draw.randint(30, self.max_observations)
        self.floor = draw.uniform(0.3, 3.0)
        self.height = self.floor * draw.uniform(0.5, 3.0)
        self.scale = draw.uniform(5.0, 40.0)
        self.power = draw.uniform(0.3, 1.0)
        self.noise = draw.uniform(0.003, 0.06)
        self.peak = 10 ** draw.uniform(-4, -2)
        self.warmup = draw.randint(0, self.max_steps // 5)
        self.min_ratio = draw.choice((0.0, 0.1))
        self.step_seconds = 10 ** draw.uniform(-2, 0.5)
        self.rate = 10 ** draw.uniform(2, 5)
        self.eval_interval = self.log_interval * draw.randint(2, 8)
        self.checkpoint_interval = draw.randint(3, 50)
        count = draw.randint(0, 3) if self.num_breaks is None else self.num_breaks
        for _ in range(count):
            last = draw.randint(1, self.max_steps - 1)
            self.breaks.append((last, last - last % self.checkpoint_interval))
        self.breaks.sort()

    @property
    def facts(self) -> Facts:
        """What its conf says."""
        return Facts(
            max_steps=self.max_steps,
            precision="bf16",
            peak_learning_rate=self.peak,
            warmup_steps=self.warmup,
            min_learning_rate_ratio=self.min_ratio,
        )

    def records(self) -> list[Record]:
        """Return the whole run, restarts included."""
        now, resumed_at, found = 1_795_000_000.0, 0, list[Record]()
        ends = [*self.breaks, (self.max_steps, 0)]
        for attempt, (last, then) in enumerate(ends, 1):
            found += self._attempt(attempt, resumed_at, max(last, resumed_at), now)
            now = max(each.time or now for each in found)
            resumed_at, now = then, now + self._draw.uniform(20, 900)
        return [*found, MarkRecord(kind="done", step=self.max_steps, time=found[-1].time)]

    def loss(self, step: int) -> float:
        """Return the loss of a step: a falling power law with noise, now and then a bad batch."""
        draw = random.Random(self.seed * 1_000_003 + step)  # noqa: S311
        bad = draw.uniform(1.2, 2.0) if draw.random() < 0.005 else 1.0
        return self._curve(step) * bad * (1 + self.noise * draw.gauss(0, 1))

    def learning_rate(self, step: int) -> float:
        """Return the rate of a step: linear warm-up, then a cosine."""
        if step <= self.warmup:
            return self.peak * step / self.warmup
        progress = (step - 1 - self.warmup) / max(1, self.max_steps - self.warmup)
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        return self.peak * (self.min_ratio + (1 - self.min_ratio) * cosine)

    def _curve(self, step: float) -> float:
        return self.floor + self.height * (1 + step / self.scale) ** -self.power

    def _attempt(self, attempt: int, resumed_at: int, last: int, now: float) -> Iterator[Record]:
        ranks = range(max(1, self.num_ranks))
        for rank in ranks:
            yield Start(
                step=resumed_at,
                rank=rank,
                time=now,
                attempt=attempt,
                world_size=len(ranks),
                max_steps=self.max_steps,
            )
        now += self._draw.uniform(0.5, 20)
        for step in range(resumed_at + 1, last + 1):
            seconds = self.step_seconds * self._draw.lognormvariate(0, 0.05)
            now += seconds * (2 if step == resumed_at + 1 else 1)
            if step == 1 or step % self.log_interval == 0 or step == self.max_steps:
                for rank in ranks:
                    yield from self._step(step, rank, now, seconds)
            if step % self.eval_interval == 0:
                now += 5 * self.step_seconds
                yield self._validation(step, now)
            if step % self.checkpoint_interval == 0:
                yield MarkRecord(kind="checkpoint", step=step, time=now)
                now += 0.2

    def _validation(self, step: int, now: float) -> Validation:
        draw = random.Random(self.seed * 7_000_003 + step)  # noqa: S311
        loss = self._curve(step) * (1.03 + self.noise / 10 * draw.gauss(0, 1))
        return Validation(step=step, time=now, loss=loss)

    def _step(self, step: int, rank: int, now: float, seconds: float) -> Iterator[Record]:
        draw = random.Random(self.seed * 3_000_017 + step)  # noqa: S311
        norm = (0.3 + 2 * math.exp(-step / self.scale)) * draw.lognormvariate(0, 0.3)
        spike = draw.uniform(2, 4) if draw.random() < 0.01 else 1.0
        rich = self._rich(seconds, norm, step) if self.num_ranks else {}
        yield StepRecord(
            step=step,
            rank=rank,
            time=now,
            loss=self.loss(step),
            learning_rate=self.learning_rate(step),
            gradient_norm=norm * spike,
            units_per_second=self.rate * self.step_seconds / seconds,
            **rich,  # type: ignore[arg-type]  # fields of several types
        )
        if self.num_ranks:
            yield from self._beside(step, rank, now)

    def _rich(self, seconds: float, norm: float, step: int) -> dict[str, object]:
        wait, local = seconds * self._draw.uniform(0.01, 0.1), self._draw.lognormvariate(0, 0.05)
        return {
            "step_seconds": seconds,
            "data_wait_seconds": wait,
            "forward_seconds": 0.3 * seconds,
            "backward_seconds": 0.5 * seconds,
            "optimizer_seconds": 0.05 * seconds,
            "local_seconds": 0.35 * seconds * local,
            "tensors": {
                GRADIENTS: {n: self._gradient(norm * s) for n, s in _TENSORS.items()},
                WEIGHTS: {n: self._weight(n, s, step) for n, s in _TENSORS.items()},
                ACTIVATIONS: {
                    "block.act": TensorStatistics(
                        inactive_fraction=self._draw.uniform(0.02, 0.3),
                        inactivity_percent=1.0,
                        module_class="ReLU",
                    )
                },
            },
        }

    def _gradient(self, size: float) -> TensorStatistics:
        return TensorStatistics(
            l2=size,
            mean_abs=size / 120,
            p5=-size / 60,
            p95=size / 60,
            zero_fraction=0.02,
            num_elements=10_000,
        )

    def _weight(self, name: str, scale: float, step: int) -> TensorStatistics:
        size = 100 * scale * (1 + 0.5 * step / self.max_steps)
        update = self.learning_rate(step) * 50 * scale * self._draw.uniform(0.5, 1.0)
        return TensorStatistics(
            l2=size,
            update_l2=update,
            variance=scale**2,
            zero_fraction=0.0,
            checksum=f"{name}{step}",
            num_elements=10_000,
        )

    def _beside(self, step: int, rank: int, now: float) -> Iterator[Record]:
        draw = self._draw
        yield Checksums(
            step=step, rank=rank, time=now, group_size=self.num_ranks, values={"w": f"{step:x}"}
        )
        gpu = GpuSample(
            utilization_percent=draw.uniform(85, 99),
            memory_percent=draw.uniform(70, 74),
            memory_bytes=int(draw.uniform(70, 74) * 1e8),
            memory_limit_bytes=int(1e10),
        )
        yield HostSample(
            step=step,
            rank=rank,
            time=now,
            host=f"algo-{rank + 1}",
            cpu_percent=draw.uniform(30, 95),
            io_wait_percent=draw.uniform(0, 5),
            memory_bytes=int(2e9 * (1 - math.exp(-step / 10)) + draw.uniform(0, 1e8)),
            memory_limit_bytes=int(1.6e10),
            gpus=(gpu, gpu),
        )
        if rank == 0:
            right = int(100 * min(0.9, 0.3 + step / self.max_steps))
            confusion = ((right, 100 - right), (100 - right, right))
            yield Predictions(step=step, time=now, confusion=confusion)
            shares = {"pad": draw.uniform(0, 0.2), "unk": draw.uniform(0, 0.01), "0": 0.1}
            yield Inputs(
                step=step, time=now, num_samples=64, token_shares=shares, channel_means=(0.05,)
            )
