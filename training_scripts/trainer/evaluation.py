"""Evaluation of a model on samples that it is not trained on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trainer.data.mixture import EvaluatedPart
    from trainer.precision import Precision
    from trainer.tasks import Batch, Task
    from trainyard_watch.distributed import Ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEvaluation:
    """Result over all ranks: mean loss per unit (token or row), number of units, and accuracy.

    `accuracy` is None if the task does not count correct predictions. `by_source` has the loss of each source of a
    mixture; it is empty for a single data set.
    """

    loss: float
    num_units: int
    accuracy: float | None
    by_source: Mapping[str, float] = field(default_factory=dict)

    def losses(self) -> str | None:
        """Return the loss of each source as one word, such as `code:1.2,web:3.4`; None for a single data set."""
        return ",".join(f"{name}:{loss:.6f}" for name, loss in self.by_source.items()) or None


def combine(parts: Sequence[EvaluatedPart], results: Sequence[ModelEvaluation]) -> ModelEvaluation:
    """Return the evaluation of a split, combined from the results for its parts.

    The loss is the mean of the parts' losses, weighted by the parts' shares.
    """
    if len(parts) == 1:
        return results[0]
    return ModelEvaluation(
        loss=sum(each.share * got.loss for each, got in zip(parts, results, strict=True)),
        num_units=sum(got.num_units for got in results),
        accuracy=None,
        by_source={each.name: got.loss for each, got in zip(parts, results, strict=True)},
    )


def evaluate(
    task: Task,
    model: nn.Module,
    batches: Iterable[Batch | None],
    *,
    precision: Precision,
    ranks: Ranks,
    see: Callable[[torch.Tensor, torch.Tensor], None] | None = None,
    spare: Batch | None = None,
) -> ModelEvaluation:
    """Return the mean loss over every rank's `batches`; the model is left in evaluation mode.

    Args:
        task: defines outputs, loss and correctness.
        model: the model to evaluate.
        batches: batches of this rank; None in place of a batch that only other ranks have.
        precision: precision of the forward pass.
        ranks: ranks over which the sums are reduced.
        see: function that is called with the outputs and targets of each batch.
        spare: batch that this rank runs in place of None; its outputs are discarded. Necessary if the forward pass has
            collectives; `batches` must then be equally long on all ranks, as those of `Training.until_stop` are.
    """
    loss_sum, num_correct, num_samples = 0.0, 0.0, 0
    model.eval()
    with torch.no_grad():
        for batch in batches:
            own = batch or spare
            if own is None:
                continue
            with precision.forward():
                outputs = task.outputs(model, own)
                if batch is None:
                    continue
                loss_sum += task.loss_sum(outputs, batch).item()
            if see:
                see(outputs, batch[-1])
            num_correct += task.num_correct(outputs, batch)
            num_samples += len(batch[0])
    loss_sum, num_correct, total_samples = ranks.sum([loss_sum, num_correct, num_samples])
    num_units = int(total_samples) * task.units_per_sample
    return ModelEvaluation(
        loss=loss_sum / num_units,
        num_units=num_units,
        accuracy=num_correct / num_units if task.num_classes else None,
    )
