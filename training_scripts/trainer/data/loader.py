"""Batches on their way to the device, for training and for evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer.data.sample_order import RankBatches

PREFETCH_BATCHES = 4


def training_batches(
    dataset: Dataset[Any], batches: RankBatches, *, num_workers: int, device: torch.device
) -> Iterator[Any]:
    """Yield this rank's micro-batches on `device`, endlessly; any workers read ahead."""
    yield from _loaded(dataset, batches, num_workers=num_workers, device=device)


def evaluation_batches(
    dataset: Dataset[Any],
    *,
    num_samples: int,
    batch_size: int,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device,
) -> Iterator[Any]:
    """Yield this rank's part of `num_samples` samples spread evenly over the data set.

    Which samples are evaluated does not depend on the number of ranks.
    """
    total = len(dataset)  # type: ignore[arg-type]
    chosen = torch.arange(num_samples) * total // num_samples
    batches = [part for part in chosen[rank::world_size].split(batch_size) if len(part)]
    yield from _loaded(dataset, batches, num_workers=0, device=device)


def _loaded(
    dataset: Dataset[Any], samples: Iterable[Tensor], *, num_workers: int, device: torch.device
) -> Iterator[Any]:
    loader = DataLoader(
        dataset,
        sampler=samples,
        batch_size=None,
        num_workers=num_workers,
        prefetch_factor=PREFETCH_BATCHES if num_workers else None,
        pin_memory=device.type == "cuda",
        # Its own generator: the loader draws a seed, and must not disturb the generator of dropout.
        generator=torch.Generator(),
    )
    for batch in loader:
        yield tuple(part.to(device, non_blocking=True) for part in batch)
