"""Learning tasks: a kind of model with its samples and its loss.

A loss is a sum over units (tokens or rows), so that the parts of ranks and micro-batches add up
exactly. A new kind of model needs a new task in `Task` and a branch in `trainer.models.build`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.data.mixture import MixedSamples, MixtureSource
from trainer.data.shard_index import ChannelIndex, shard_files
from trainer.data.table import TableLayout, read_layout
from trainer.data.table_rows import TableRows
from trainer.data.token_blocks import TokenBlocks
from trainer.models.mlp import MLPConfig
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from trainer.hyperparameters import Hyperparameters

Channels = Mapping[str, Path]
Batch = tuple[Tensor, ...]
LOSS_VALUES = 2**27
"""Number of logits whose loss an evaluation computes at once: 0.5 GiB in float32, plus 0.5 GiB for the log-softmax."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageTask:
    """Next-token prediction. A sample is `sequence_length` tokens; the loss is in nats per token."""

    model_config: Mapping[str, Any]
    unit: str = "tokens"
    num_classes: int = 0
    """Number of classes for the confusion counts of the statistics; 0 for none."""

    @property
    def units_per_sample(self) -> int:
        """Return the number of predicted tokens per sample."""
        return self.model_config["sequence_length"]

    def open_split(
        self, index: ChannelIndex, split: str, channel: Path | None, *, verify: bool
    ) -> TokenBlocks | MixedSamples:
        """Return the token blocks of a split.

        If the data set is a mixture, the result has the blocks of all its sources.

        Raises:
            DataError: the index has another vocabulary than the model, or the shards cannot be
                used.
        """
        if index.kind == "tokens" and index.vocab_size != self.model_config["vocab_size"]:
            message = (
                f"the model has vocab_size {self.model_config['vocab_size']}, but the index's tokenizer has "
                f"{index.vocab_size}; use the data set that the model was trained on"
            )
            raise DataError(message)
        open_blocks = partial(
            TokenBlocks.open, sequence_length=self.units_per_sample, verify=verify
        )
        if not index.shares:
            return open_blocks(index, split, channel)
        sources, findings = [], []
        for name, parts in index.shares.items():
            try:
                blocks = open_blocks(index.of_source(name), split, channel)
            except DataError as error:
                findings += [f"source {name!r} of the mixture: {each}" for each in error.findings]
                continue
            sources.append(MixtureSource(name=name, parts=parts, samples=blocks))
        if findings:
            raise DataError(findings)
        return MixedSamples(sources)

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the logits, of shape (batch, time, vocabulary)."""
        return model(batch[0])

    def loss_sum(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the cross-entropy in nats, summed over tokens.

        Without gradients, at most LOSS_VALUES logits at a time are converted to float32, which limits the memory.
        """
        logits, targets = outputs.flatten(0, 1), batch[1].flatten()
        at_once = max(1, LOSS_VALUES // logits.shape[1])
        if torch.is_grad_enabled() or len(logits) <= at_once:
            return functional.cross_entropy(logits.float(), targets, reduction="sum")
        parts = zip(logits.split(at_once), targets.split(at_once), strict=True)
        losses = [
            functional.cross_entropy(part.float(), wanted, reduction="sum")
            for part, wanted in parts
        ]
        return torch.stack(losses).sum()

    def num_correct(self, outputs: Tensor, batch: Batch) -> int:  # noqa: ARG002
        """Return 0: the task does not count correct tokens."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTask:
    """Prediction of one column from the others; a sample is a row.

    For classes the loss is the cross-entropy in nats, for numbers the squared error of the
    standardized target.
    """

    layout: TableLayout
    model_config: Mapping[str, Any]
    unit: str = "samples"
    units_per_sample: int = 1

    @property
    def num_classes(self) -> int:
        """Return the number of classes of the target; 0 for numbers."""
        return len(self.layout.target.classes or ())

    def open_split(
        self, index: ChannelIndex, split: str, channel: Path | None, *, verify: bool
    ) -> TableRows:
        """Return the rows of a split.

        Raises:
            DataError: shards are missing or damaged, the split is empty, or a row has no usable target.
        """
        return TableRows.open(index, split, channel, layout=self.layout, verify=verify)

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return logits (batch, classes) or numbers (batch, 1)."""
        return model(batch[0], batch[1])

    def loss_sum(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the loss summed over rows."""
        if self.layout.target.classes:
            return functional.cross_entropy(outputs.float(), batch[2], reduction="sum")
        return functional.mse_loss(outputs.float().squeeze(1), batch[2], reduction="sum")

    def num_correct(self, outputs: Tensor, batch: Batch) -> int:
        """Return the number of rows whose highest logit is that of their class; 0 without classes."""
        if not self.num_classes:
            return 0
        return int((outputs.argmax(dim=1) == batch[2]).sum())


Task = LanguageTask | TableTask


def make_task(hyperparameters: Hyperparameters, index: ChannelIndex, channels: Channels) -> Task:
    """Return the task that the hyperparameter `model` selects.

    The data set determines the sizes of the model's inputs and outputs, such as the vocabulary size.

    Raises:
        DataError: the data set is of the wrong kind, or has no usable target.
    """
    if hyperparameters.model == "gpt":
        if index.kind != "tokens":
            message = f"model gpt needs token shards, but the index is of kind {index.kind!r}; use model mlp"
            raise DataError(message)
        config = hyperparameters.decoder_config(vocab_size=index.vocab_size)
        return LanguageTask(model_config=config.to_dict())
    files = (
        shard_files(index, "train", channels.get("train"), verify=False)
        if index.kind == "columns"
        else []
    )
    layout = read_layout(
        index, files, target_column=hyperparameters.target_column, problem=hyperparameters.problem
    )
    perceptron = MLPConfig(
        means=layout.means,
        stds=layout.stds,
        category_sizes=layout.category_sizes,
        num_outputs=layout.target.num_outputs,
        num_layers=hyperparameters.num_layers,
        hidden_size=hyperparameters.hidden_size,
        dropout=hyperparameters.dropout,
    )
    return TableTask(layout=layout, model_config=perceptron.to_dict())


def open_splits(
    task: Task, index: ChannelIndex, channels: Channels, splits: tuple[str, ...], *, verify: bool
) -> list[Dataset[Any]]:
    """Return the samples of several splits.

    Raises:
        DataError: a split cannot be used; the error has the findings of all splits.
    """
    opened, findings = [], []
    for split in splits:
        try:
            opened.append(task.open_split(index, split, channels.get(split), verify=verify))
        except DataError as error:
            findings += error.findings
    if findings:
        raise DataError(findings)
    return opened
