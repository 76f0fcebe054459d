"""DPO of pairs that are tokenized already: TRL's trainer with token ids and labels of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import pad_sequence
from trl import DPOTrainer

from sft.rows import IGNORED
from trainyard_watch.huggingface import StoppableEvaluation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasets import Dataset
    from torch import Tensor

PAIR_COLUMNS = ("chosen_ids", "chosen_labels", "rejected_ids", "rejected_labels")


class PairTrainer(StoppableEvaluation, DPOTrainer):
    """TRL's DPO trainer over a data set that is already tokenized, with the columns `PAIR_COLUMNS`.

    TRL's own tokenization is skipped, because it would read messages from Arrow structs. In an Arrow struct, a
    message or tool call also has the keys that only other rows use, with the value null. The model would learn
    these keys and nulls.
    """

    def _prepare_dataset(self, dataset: Dataset, *args: Any, **kwargs: Any) -> Dataset:  # noqa: ARG002  # TRL's own
        return dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCollator:
    """Joins tokenized pairs into a padded batch for TRL's DPO trainer.

    The first half of the batch's rows has the chosen answers, the second half has the rejected ones.
    """

    pad_token_id: int

    def __call__(self, pairs: Sequence[dict[str, list[int]]]) -> dict[str, Tensor]:
        """Return `input_ids`, `attention_mask` and `completion_mask`, padded on the right."""
        kinds = ("chosen", "rejected")
        ids = [torch.tensor(pair[f"{kind}_ids"]) for kind in kinds for pair in pairs]
        labels = [torch.tensor(pair[f"{kind}_labels"]) for kind in kinds for pair in pairs]
        return {
            "input_ids": self._padded(ids, value=self.pad_token_id),
            "attention_mask": self._padded([torch.ones_like(each) for each in ids], value=0),
            "completion_mask": self._padded([(each != IGNORED).long() for each in labels], value=0),
        }

    @staticmethod
    def _padded(values: list[Tensor], *, value: int) -> Tensor:
        return pad_sequence(values, batch_first=True, padding_value=value)
