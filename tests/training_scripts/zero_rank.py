"""A training with DeepSpeed that logs the dtype of its logits and the size of the optimizer state it restores."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer.process import run_rank
from trainer.zero.state import ZeroState
from trainer.zero.training import ZeroTraining

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

log = logging.getLogger(__name__)


class ObservedState(ZeroState):
    """Logs the number of elements of the optimizer state that it is given."""

    def restore(self, content: Mapping[str, Any]) -> None:
        """Count, then restore."""
        log.info("restored %d", sum(each.numel() for each in tensors(content["zero"])))
        super().restore(content)


class ObservedTraining(ZeroTraining):
    """Trains as on a GPU: there, the engine switches off an autocast that is on around it."""

    state_class = ObservedState

    def parallelize(self) -> None:
        """Start the engine, and observe the model under it."""
        super().parallelize()
        torch.set_autocast_enabled("cuda", True)  # the device that the engine asks about
        self.model.register_forward_hook(lambda *call: log.info("logits %s", call[2].dtype))


def tensors(tree: Any) -> Iterator[Tensor]:
    """Yield the tensors of a nested container."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (dict, list)):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors(each)


def main(_: list[str]) -> int:
    """Run one rank of it."""
    return run_rank(ObservedTraining)
