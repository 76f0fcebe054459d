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


class WithSamples(Dataset[tuple[Any, Tensor]]):
    """A data set whose items say which samples they are made of: (micro-batch, sample numbers)."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset = dataset

    def __getitem__(self, samples: Tensor) -> tuple[Any, Tensor]:
        return self._dataset[samples], samples


def training_batches(
    dataset: Dataset[Any], batches: RankBatches, *, num_workers: int, device: torch.device
) -> Iterator[tuple[Any, Tensor]]:
    """Yield this rank's micro-batches, endlessly, each with the samples that it is made of.

    The micro-batch lies on `device`, the sample numbers on the CPU; they come from where the samples
    were read, if need be from a loader process. Any workers read ahead.
    """
    loader = _loader(WithSamples(dataset), batches, num_workers=num_workers, device=device)
    for batch, samples in loader:
        yield _moved(batch, device), samples


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
    for batch in _loader(dataset, batches, num_workers=0, device=device):
        yield _moved(batch, device)


def _loader(
    dataset: Dataset[Any], samples: Iterable[Tensor], *, num_workers: int, device: torch.device
) -> Iterable[Any]:
    return DataLoader(
        dataset,
        sampler=samples,
        batch_size=None,
        num_workers=num_workers,
        prefetch_factor=PREFETCH_BATCHES if num_workers else None,
        pin_memory=device.type == "cuda",
        # Its own generator: the loader draws a seed, and must not disturb the generator of dropout.
        generator=torch.Generator(),
    )


def _moved(batch: Iterable[Tensor], device: torch.device) -> tuple[Tensor, ...]:
    return tuple(part.to(device, non_blocking=True) for part in batch)
