"""What is learned from what: ties a model to its data sets and its loss.

A task's loss is a sum over units (tokens or rows), so that the parts of ranks and micro-batches add up exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from trainer.data.shard_index import ShardIndex
from trainer.data.token_blocks import TokenBlocks
from trainer.environment import ContainerPaths
from trainer.errors import DataError
from trainer.hyperparameters import Hyperparameters
from trainer.models.gpt import GPTConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageTask:
    """Predict the next token; a sample is `sequence_length` tokens."""

    train_set: Dataset[Any]
    validation_set: Dataset[Any]
    model_config: Mapping[str, Any]
    units_per_sample: int
    unit: str = "tokens"

    def loss_sum(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Return the cross-entropy in nats, summed over the batch's tokens."""
        inputs, targets = batch
        logits = model(inputs)
        return functional.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), reduction="sum"
        )


def open_task(
    hyperparameters: Hyperparameters, paths: ContainerPaths, *, verify: bool
) -> tuple[LanguageTask, ShardIndex]:
    """Return the task that the hyperparameters name, over the channels `train`, `validation` and `index`.

    Raises:
        DataError: findings of both splits together.
    """
    index = ShardIndex.load(paths.channels.get("index"))
    findings: list[str] = []
    sets = []
    for split in ("train", "validation"):
        try:
            sets.append(
                TokenBlocks.open(
                    index,
                    split,
                    paths.channels.get(split),
                    sequence_length=hyperparameters.sequence_length,
                    verify=verify,
                )
            )
        except DataError as error:
            findings += error.findings
    if findings:
        raise DataError(findings)
    config = GPTConfig(
        vocab_size=index.vocab_size,
        num_layers=hyperparameters.num_layers,
        num_heads=hyperparameters.num_heads,
        hidden_size=hyperparameters.hidden_size,
        sequence_length=hyperparameters.sequence_length,
        dropout=hyperparameters.dropout,
    )
    task = LanguageTask(
        train_set=sets[0],
        validation_set=sets[1],
        model_config=config.to_dict(),
        units_per_sample=hyperparameters.sequence_length,
    )
    return task, index
