"""Healthy small trainings, really trained: networks and settings that rules on tensors are easily wrong about."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tests.rules.faults import data_sets
from tests.rules.faults.running import TINY_GPT, TINY_MLP, run_training
from tests.rules.faults.trainings import OwnModel
from tests.rules.health.blame import Blame, blame
from trainer.training import Training
from trainyard.rules.records import Facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

WIDTH = 64


def after_batch_norm() -> nn.Module:
    """Return layers whose biases have no gradient: the normalization takes them away."""
    layers = [nn.Linear(16, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4)
    )


class TinyAttention(nn.Module):
    """Attention over the sixteen numbers; the softmax takes the bias of the keys away."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 32)
        self.place = nn.Parameter(0.5 * torch.randn(16, 32))
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))
        self.head = nn.Linear(32, 4)

    def forward(self, numbers: Tensor) -> Tensor:
        tokens = self.embed(numbers[:, :, None]) + self.place
        query, key, value = (each(tokens) for each in (self.query, self.key, self.value))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.head((tokens + mixed).mean(1))


class Adapter(nn.Module):
    """LoRA: a frozen matrix, and a product of two that is zero at first."""

    def __init__(self, inputs: int, outputs: int, rank: int = 4) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, inputs) / math.sqrt(inputs))
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2 * (x @ self.down.T) @ self.up.T


def adapters() -> nn.Module:
    """Return a network of adapters."""
    return nn.Sequential(
        Adapter(16, WIDTH), nn.ReLU(), Adapter(WIDTH, WIDTH), nn.ReLU(), Adapter(WIDTH, 4)
    )


class SparseEmbedding(nn.Module):
    """A table of 20,000 rows of which a step learns some."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(20_000, 16)
        self.body = nn.Sequential(nn.Linear(32, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))

    def forward(self, numbers: Tensor) -> Tensor:
        place = ((1000 * numbers[:, 0]).long() * 7919 + (1000 * numbers[:, 3]).long()) % 20_000
        return self.body(torch.cat([self.rows(place), numbers], 1))


class Experts(nn.Module):
    """A mixture of experts: each sample goes to one of sixteen."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.shared = nn.Linear(16, 16), nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 4) for _ in range(16))

    def forward(self, numbers: Tensor) -> Tensor:
        weight, chosen = self.router(numbers).softmax(-1).max(-1)
        found = self.shared(numbers)
        for number, expert in enumerate(self.experts):
            found = found + ((chosen == number) * weight)[:, None] * expert(numbers)
        return found


class LateBranch(nn.Module):
    """A second head whose weight is 0 for the first hundred steps."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, WIDTH), nn.ReLU())
        self.head, self.second = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, 4)
        self.count = 0

    def forward(self, numbers: Tensor) -> Tensor:
        self.count += 1
        inner = self.body(numbers)
        return self.head(inner) + (0.0 if self.count <= 100 else 0.1) * self.second(inner)


class Masked(nn.Module):
    """Puts out minus infinity for what is masked."""

    def forward(self, x: Tensor) -> Tensor:
        return x.masked_fill(torch.arange(x.shape[-1]) >= 4, -math.inf)


def masked() -> nn.Module:
    """Return a network with a mask before a softmax."""
    return nn.Sequential(
        nn.Linear(16, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, 6),
        Masked(),
        nn.Softmax(-1),
        nn.Linear(6, 4),
    )


def of(net: Callable[[], nn.Module]) -> type[Training]:
    """Return the training of a network."""
    return type("Own", (OwnModel,), {"network": staticmethod(net)})


class BrokenBatch(Training):
    """One batch whose loss is not a number; the script skips it."""

    def add_gradient(self, batch: Any, *, exchanges: bool) -> Tensor:
        loss = super().add_gradient(batch, exchanges=exchanges)
        return loss * math.nan if self.state.progress.step + 1 == 100 else loss


class Overflowing(Training):
    """fp16, whose scaler tries a larger scale every ten steps in the place of 2,000."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.precision.scaler.set_growth_interval(10)


@dataclass(frozen=True, kw_only=True)
class Healthy:
    """One training: what runs, and with which settings."""

    training: type[Training] = Training
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    data: str = "table"

    def facts(self) -> Facts:
        """Return what its conf says."""
        settings = self.hyperparameters
        skips = settings.get("on_non_finite") == "skip"
        precision = settings.get("precision", "fp32")
        return Facts(
            max_steps=settings.get("max_steps", 200), precision=precision, skipped_steps=5 * skips
        )


TRAININGS: Mapping[str, Healthy] = {
    "biases before BatchNorm": Healthy(training=of(after_batch_norm)),
    "bias of the keys of attention": Healthy(training=of(TinyAttention)),
    "LoRA, frozen base": Healthy(training=of(adapters)),
    "sparse embedding": Healthy(training=of(SparseEmbedding)),
    "mixture of experts, top 1": Healthy(training=of(Experts)),
    "branch of weight 0 at first": Healthy(training=of(LateBranch)),
    "mask of minus infinities": Healthy(training=of(masked)),
    "fp16, the scale overflows": Healthy(
        training=Overflowing, hyperparameters={"precision": "fp16"}
    ),
    "one NaN batch, skipped": Healthy(
        training=BrokenBatch, hyperparameters={"on_non_finite": "skip"}
    ),
    "classification to 0": Healthy(hyperparameters={"max_steps": 600}, data="small"),
    "small rate, as a fine-tuning": Healthy(
        hyperparameters={**TINY_GPT, "learning_rate": 1e-5, "max_steps": 260}, data="source"
    ),
}
DATA: Mapping[str, Callable[[Path], Path]] = {
    "table": data_sets.table,
    "small": lambda root: data_sets.table(root, rows=64),
    "source": data_sets.source_tokens,
}


@dataclass(frozen=True)
class Trainings:
    """Runs trainings below a folder."""

    folder: Path

    def judge(self, name: str, seed: int) -> tuple[str, Blame]:
        """Return what the default rules blame one training for."""
        healthy = TRAININGS[name]
        data = self.folder / "data" / f"{healthy.data}-{name}-{seed}"
        DATA[healthy.data](data)
        base = {} if healthy.data == "source" else TINY_MLP
        observed = run_training(
            self.folder / f"{name}-{seed}",
            healthy.training,
            {**base, **healthy.hyperparameters, "seed": seed},
            data,
        )
        assert observed.exit_codes == [0], observed.log[-2000:]
        return name, blame(observed.records, healthy.facts())
