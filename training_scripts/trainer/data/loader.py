"""Data loading: batches on the device, for training and for evaluation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer.data.sample_order import RankBatches
    from trainyard_watch.distributed import Ranks

PREFETCH_BATCHES = 4
PROCESSES_ON_GPU = 2
"""Loader processes of a rank on a GPU; the published speeds of the scripts were measured with this number."""


class WithSamples(Dataset[tuple[Any, Tensor]]):
    """Data set whose items are pairs (micro-batch, sample numbers)."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset = dataset

    def __getitem__(self, samples: Tensor) -> tuple[Any, Tensor]:
        return self._dataset[samples], samples


def choose_num_processes(requested: int | None, ranks: Ranks) -> int:
    """Return a rank's number of loader processes: `requested`, or the default if that is None.

    The default on a GPU is 2. It is lower on a host with few processors: a rank's share of the processors must
    be enough for the rank itself and for its loader processes. On a CPU the default is 0. There a rank
    computes with all its processors, so it reads its samples itself.
    """
    if requested is not None:
        return requested
    if ranks.device.type == "cpu":
        return 0
    num_cpus = int(os.environ.get("SM_NUM_CPUS") or os.cpu_count() or 1)
    spare = num_cpus // max(1, ranks.local_world_size) - 1
    return max(0, min(PROCESSES_ON_GPU, spare))


def training_batches(
    dataset: Dataset[Any], batches: RankBatches, *, num_workers: int, device: torch.device
) -> Iterator[tuple[Any, Tensor]]:
    """Yield this rank's micro-batches without end, each with its sample numbers.

    The micro-batch is on `device`, the sample numbers (int64) are on the CPU. The process that reads the samples also
    returns their numbers. With `num_workers`, loader processes read ahead.
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
    """Yield this rank's batches of an evaluation.

    The evaluation uses `num_samples` samples, which are spread evenly over the data set and divided among the
    ranks. Which samples it uses does not depend on the number of ranks.
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
        # A separate generator: the loader draws a seed, which must not change the random states of dropout.
        generator=torch.Generator(),
    )


def _moved(batch: Iterable[Tensor], device: torch.device) -> tuple[Tensor, ...]:
    return tuple(part.to(device, non_blocking=True) for part in batch)
