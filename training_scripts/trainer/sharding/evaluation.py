"""Validation loss of a model that several ranks run together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer.evaluation import Evaluation
from trainer.precision import DTYPES
from trainer.sharding.pipeline import pass_forward

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from trainer.sharding.mesh import RankMesh
    from trainer.sharding.training import ShardedTraining


@torch.no_grad()
def evaluate_together(
    training: ShardedTraining, mesh: RankMesh, batches: Iterator[Any]
) -> Evaluation:
    """Return the mean loss over every reader's batches; the model is left in evaluation mode.

    Ranks that share shards must run the model equally often: a rank without a batch runs a spare one, whose outputs are
    discarded.
    """
    task, ranks = training.task, training.ranks
    loss_sum, num_correct, num_samples = 0.0, 0.0, 0
    has_accuracy = True
    spare = tuple(part.to(ranks.device) for part in training.train_set[torch.arange(1)])
    training.model.eval()
    while True:
        batch = next(batches, None)
        if not ranks.sum([float(batch is not None)])[0]:
            break
        outputs = _outputs(training, mesh, training.own_part(batch or spare))
        if batch is None or outputs is None or not mesh.knows_loss:
            continue
        own = training.own_part(batch)
        loss_sum += task.loss_sum(outputs, own).item()
        correct = task.num_correct(outputs, own)
        has_accuracy = correct is not None
        num_correct += correct.item() if correct is not None else 0
        num_samples += len(batch[0]) if mesh.place("cp") == 0 else 0
    loss_sum, num_correct, total = ranks.sum([loss_sum, num_correct, num_samples])
    num_units = int(total) * task.units_per_sample
    return Evaluation(
        loss=loss_sum / num_units,
        num_units=num_units,
        accuracy=num_correct / num_units if has_accuracy and task.unit == "samples" else None,
    )


def _outputs(training: ShardedTraining, mesh: RankMesh, batch: tuple[Tensor, ...]) -> Tensor | None:
    if mesh.degrees.pipeline == 1:
        return training.task.outputs(training.model, batch)
    hp, tokens = training.hp, batch[0]
    like = (len(tokens), tokens.shape[1] // mesh.degrees.tensor, hp.hidden_size)
    return pass_forward(training.model, mesh, tokens, like=like, dtype=DTYPES[hp.precision])
