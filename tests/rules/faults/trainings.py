"""Trainings with a fault in them: subclasses that do one thing wrong, from one step on or at one step."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from trainer.schedule import LearningRateSchedule
from trainer.training import Training
from trainyard_watch.statistics import host_samples, opening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainer.llama.checkpoint import LlamaCheckpoint
    from trainyard_watch.statistics.host_samples import HostSampler


class Faulty(Training):
    """Base: `at` is the first step of the fault."""

    at: ClassVar[int] = 100

    @property
    def step(self) -> int:
        """The step that is being taken, from 1."""
        return self.state.progress.step + 1

    @property
    def is_faulty(self) -> bool:
        """Whether the fault is there."""
        return self.step >= self.at


class NanLoss(Faulty):
    """The loss and its gradient become NaN at one step."""

    def add_gradient(self, batch: Any, *, exchanges: bool) -> Tensor:
        loss = super().add_gradient(batch, exchanges=exchanges)
        return self._spoiled(loss)

    def differentiate(self, loss: Tensor) -> None:
        super().differentiate(self._spoiled(loss))

    def _spoiled(self, loss: Tensor) -> Tensor:
        return loss * math.nan if self.step == self.at else loss


class NanGradient(Faulty):
    """One gradient becomes NaN at one step; the loss is still a number."""

    def clip_gradients(self, limit: float) -> float:
        if self.step == self.at:
            gradient = self.tensors.parameters[1].grad
            assert gradient is not None
            gradient.view(-1)[0] = math.nan
        return super().clip_gradients(limit)


class BadBatch(Faulty):
    """The gradient of one batch is ten thousand times too large."""

    def clip_gradients(self, limit: float) -> float:
        if self.step == self.at:
            torch._foreach_mul_(self.tensors.gradients()[1], 1e4)
        return super().clip_gradients(limit)


class Damaged(Faulty):
    """The weights are disturbed at one step, and the loss jumps."""

    def update_weights(self, loss: float) -> float:
        norm = super().update_weights(loss)
        if self.step == self.at:
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.mul_(4)
        return norm


class Uphill(Faulty):
    """The update goes the wrong way, a little."""

    def clip_gradients(self, limit: float) -> float:
        norm = super().clip_gradients(limit)
        if self.is_faulty:
            torch._foreach_neg_(self.tensors.gradients()[1])
        return norm


class Rate(Faulty):
    """The learning rate is changed by `change`, which is given the step and the right rate."""

    change: ClassVar[Callable[[int, float], float]]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        change, right = type(self).change, self.schedule

        class Changed(LearningRateSchedule):
            def at(self, step: int) -> float:
                return change(step + 1, right.at(step))

        self.schedule = Changed(peak=1, warmup_steps=0, max_steps=1, min_ratio=0)


class ZeroRate(Rate):
    """The learning rate is zero from the beginning."""

    at = 1
    change = staticmethod(lambda _, rate: 0.0 * rate)


class RateStops(Rate):
    """The learning rate is as good as zero from step 100 on."""

    change = staticmethod(lambda step, rate: rate if step < 100 else 1e-12)


class RateJumps(Rate):
    """The learning rate is ten times too high from step 100 on."""

    change = staticmethod(lambda step, rate: rate if step < 100 else 10 * rate)


class HugeRate(Rate):
    """The learning rate is a hundred times too high from the beginning."""

    at = 1
    change = staticmethod(lambda _, rate: 200 * rate)


def stacked(
    activation: type[nn.Module], *, depth: int, scale: float, shift: float = 0.0
) -> nn.Module:
    """Return a perceptron for the table of eight numbers, its weights and biases of this size."""
    layers: list[nn.Module] = []
    width = 16
    for _ in range(depth):
        layers += [nn.Linear(width, 32), activation()]
        width = 32
    layers.append(nn.Linear(width, 4))
    for layer in layers[:-1]:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=scale)
            nn.init.constant_(layer.bias, shift)
    return nn.Sequential(*layers)


class OwnModel(Faulty):
    """Another model than the default one."""

    at = 1
    network: ClassVar[Callable[[], nn.Module]]

    def make_model(self, _initial: LlamaCheckpoint | None) -> nn.Module:
        body = type(self).network()

        class TableTraining(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layers = body

            def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:  # noqa: ARG002
                numbers = numbers.float()
                return self.layers(torch.cat([numbers, numbers.square()], dim=1))

        return TableTraining()


class DeepSigmoids(OwnModel):
    """Twelve sigmoid layers: the gradient vanishes on its way down."""

    network = staticmethod(lambda: stacked(nn.Sigmoid, depth=12, scale=0.1))


class TinyWeights(OwnModel):
    """Weights so small that the gradient vanishes, by initialization alone."""

    network = staticmethod(lambda: stacked(nn.SiLU, depth=6, scale=1e-4))


class DeadRelus(OwnModel):
    """Biases that no input overcomes."""

    network = staticmethod(lambda: stacked(nn.ReLU, depth=2, scale=0.1, shift=-100.0))


class SaturatedTanhs(OwnModel):
    """Inputs of tanh far beyond its bounds."""

    network = staticmethod(lambda: stacked(nn.Tanh, depth=2, scale=100.0))


class FrozenTensor(Faulty):
    """One tensor gets no update from a step on; as if its gradient were not computed."""

    def clip_gradients(self, limit: float) -> float:
        norm = super().clip_gradients(limit)
        if self.is_faulty:
            self.tensors.parameters[2].grad = None
        return norm


class ZeroTensor(Faulty):
    """One tensor is set to zero after each update."""

    def update_weights(self, loss: float) -> float:
        norm = super().update_weights(loss)
        if self.is_faulty:
            with torch.no_grad():
                self.tensors.parameters[2].zero_()
        return norm


class SlowTraining(Faulty):
    """Sleeps somewhere in the step."""

    seconds: ClassVar[float] = 0.05

    def sleep(self) -> None:
        """Take longer than needed."""
        time.sleep(self.seconds)


class SlowSteps(SlowTraining):
    """Every step is slow from a step on."""

    def sync_metrics(self, loss_sum: Tensor, digest: int) -> tuple[float, int, bool]:
        if self.is_faulty:
            self.sleep()
        return super().sync_metrics(loss_sum, digest)


class SomeSlowSteps(SlowTraining):
    """Every seventh step takes very long."""

    seconds = 0.5

    def sync_metrics(self, loss_sum: Tensor, digest: int) -> tuple[float, int, bool]:
        if self.is_faulty and self.step % 7 == 0:
            self.sleep()
        return super().sync_metrics(loss_sum, digest)


class StalledLoader(SlowTraining):
    """The loader is slow from a step on, also beside the steps of a busy machine."""

    seconds = 0.2

    def batches(self) -> Iterator[tuple[Any, Tensor]]:
        for each in super().batches():
            if self.is_faulty:
                self.sleep()
            yield each


class SlowRank(SlowTraining):
    """Rank 1 is slow in its input, from a step on."""

    seconds = 0.2

    def batches(self) -> Iterator[tuple[Any, Tensor]]:
        for each in super().batches():
            if self.is_faulty and self.ranks.rank == 1:
                self.sleep()
            yield each


class FlippedBit(Faulty):
    """One bit of one weight of rank 1 flips."""

    def update_weights(self, loss: float) -> float:
        norm = super().update_weights(loss)
        if self.step == self.at and self.ranks.rank == 1:
            with torch.no_grad():
                weight = self.tensors.parameters[3].view(-1)
                weight[7:8].view(torch.int32).bitwise_xor_(1)
        return norm


class HangingStep(Faulty):
    """Never comes back from a step."""

    def sync_metrics(self, loss_sum: Tensor, digest: int) -> tuple[float, int, bool]:
        while self.is_faulty:
            time.sleep(3600)
        return super().sync_metrics(loss_sum, digest)


class LateStart(Faulty):
    """The first step takes long to come."""

    at = 1

    def take_steps(self) -> None:
        time.sleep(1.5)
        super().take_steps()


class Sampled(SlowTraining):
    """Samples the host fifty times a second, so that what takes minutes is seen in seconds."""

    seconds = 0.03

    def open_statistics(self) -> None:
        original = opening.HostSampler

        def often(*args: Any, **options: Any) -> HostSampler:
            return original(*args, **options, interval_s=0.02)

        opening.HostSampler = often  # type: ignore[misc, assignment]
        try:
            super().open_statistics()
        finally:
            opening.HostSampler = original  # type: ignore[misc]

    def sync_metrics(self, loss_sum: Tensor, digest: int) -> tuple[float, int, bool]:
        self.sleep()
        return super().sync_metrics(loss_sum, digest)


class Leaking(Sampled):
    """Keeps 4 MB of each step: enough growth between samples for the slow steps of a busy machine, too."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.kept: list[Tensor] = []

    def sync_metrics(self, loss_sum: Tensor, digest: int) -> tuple[float, int, bool]:
        if self.is_faulty:
            self.kept.append(torch.ones(2**20))
        return super().sync_metrics(loss_sum, digest)


class ScriptedGpus(Sampled):
    """A stand-in for NVML: two GPUs whose numbers `script` gives by the step; the samples are taken and written."""

    at = 1
    script: ClassVar[Callable[[int, int], tuple[float, float]]]

    def open_statistics(self) -> None:
        sys.modules["pynvml"] = self._nvml()  # type: ignore[assignment]
        super().open_statistics()

    def _nvml(self) -> SimpleNamespace:
        def rates(gpu: int) -> SimpleNamespace:
            return SimpleNamespace(gpu=type(self).script(self.step, gpu)[0])

        def memory(gpu: int) -> SimpleNamespace:
            used = type(self).script(self.step, gpu)[1]
            return SimpleNamespace(used=used * 2**30, total=100 * 2**30)

        return SimpleNamespace(
            nvmlInit=lambda: None,
            nvmlDeviceGetCount=lambda: 2,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetUtilizationRates=rates,
            nvmlDeviceGetMemoryInfo=memory,
        )


class IdleGpus(ScriptedGpus):
    """Both GPUs do little and hold little."""

    script = staticmethod(lambda step, gpu: (5.0, 10.0))  # noqa: ARG005


class SlowDisk(IdleGpus):
    """The kernel's counters say that the cores wait for a disk in 3 of 4 ticks."""

    def open_statistics(self) -> None:
        ticks = itertools.count(step=100)
        read = host_samples.read_counters

        def waiting() -> host_samples.Counters:
            now = next(ticks)
            return dataclasses.replace(read(), total=now, idle=0, io_wait=now * 3 // 4)

        host_samples.read_counters = waiting
        super().open_statistics()


class OneGpu(ScriptedGpus):
    """Only the first GPU works."""

    script = staticmethod(lambda step, gpu: (95.0 if gpu == 0 else 5.0, 50.0))  # noqa: ARG005


class GrowingGpus(ScriptedGpus):
    """Memory in use grows with the steps."""

    script = staticmethod(lambda step, gpu: (90.0, min(99.0, step / 1.5)))  # noqa: ARG005


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Keep cores busy with processes of ours."""
    pids = []
    for _ in range(count):
        pid = os.fork()
        if not pid:
            os.nice(10)
            while True:
                pass
        pids.append(pid)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, 9)
            os.waitpid(pid, 0)


class Images(Faulty):
    """A small convolutional network on images whose second channel was not normalized."""

    at = 1

    def make_model(self, _initial: LlamaCheckpoint | None) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4)
        )

    def batches(self) -> Iterator[tuple[Any, Tensor]]:
        for (numbers, codes, labels), samples in super().batches():
            noise = numbers[:, :1, None, None].float() + torch.randn(len(numbers), 3, 8, 8)
            yield (noise + torch.tensor([0.0, 0.7, 0.0])[:, None, None], codes, labels), samples

    def add_gradient(self, batch: Any, *, exchanges: bool) -> Tensor:  # noqa: ARG002
        part = nn.functional.cross_entropy(self.parallel(batch[0]), batch[2], reduction="sum")
        (part / self.units_per_batch).backward()
        return part.detach()

    def validate_if_due(self) -> None:
        """Images are trained on only."""
