"""Division of a global batch into micro-batches per rank, and the number of evaluated samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard_watch.errors import DataError, HyperparameterError

if TYPE_CHECKING:
    from trainer.hyperparameters import Hyperparameters


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Batch sizes in samples: global_batch_size = world_size x gradient_accumulation_steps x micro_batch_size."""

    global_batch_size: int
    micro_batch_size: int
    gradient_accumulation_steps: int


def plan_batches(
    hyperparameters: Hyperparameters, *, world_size: int, num_samples: int
) -> BatchPlan:
    """Return the division of a global batch over `world_size` ranks.

    Raises:
        HyperparameterError: the global batch does not divide evenly.
        DataError: the training split has fewer samples than one global batch.
    """
    batch = hyperparameters.global_batch_size
    micro = hyperparameters.micro_batch_size or max(1, batch // world_size)
    if batch % (world_size * micro):
        unit = world_size * micro
        allowed = sorted({unit * max(1, batch // unit), unit * (batch // unit + 1)})
        message = (
            f"global_batch_size {batch} does not divide into {world_size} ranks x micro_batch_size {micro}; "
            f"use a multiple of {unit}, for example {' or '.join(map(str, allowed))}"
        )
        raise HyperparameterError(message)
    if num_samples < batch:
        message = (
            f"the training split has {num_samples} samples, fewer than one global_batch_size of {batch}; "
            "lower global_batch_size or sequence_length, or add data"
        )
        raise DataError(message)
    return BatchPlan(
        global_batch_size=batch,
        micro_batch_size=micro,
        gradient_accumulation_steps=batch // (world_size * micro),
    )


def num_evaluated(hyperparameters: Hyperparameters, *, num_samples: int) -> int:
    """Return the number of samples of one evaluation: `eval_batches` global batches, but at most `num_samples`.

    `num_samples` is the size of the validation split. If `eval_batches` is 0, the whole split is evaluated.
    """
    wanted = hyperparameters.eval_batches * hyperparameters.global_batch_size
    return min(wanted or num_samples, num_samples)
